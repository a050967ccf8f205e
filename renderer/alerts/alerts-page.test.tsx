import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { renderOver } from "../dev/render.js";
import { createI18n } from "../i18n/index.js";
import { AlertsPage } from "./AlertsPage.js";
import { measureText, metricText, timeTick } from "./words.js";

const rowOf = (id: string) => within(document.querySelector<HTMLElement>(`tr[data-alert="${id}"]`)!);

describe("the Alerts page", () => {
  it("shows what lasts before what is over, with worst and limit, and takes note that somebody saw it", async () => {
    const { host } = renderOver(<AlertsPage />);
    await waitFor(() => expect(screen.getAllByRole("row")).toHaveLength(3));
    const rows = [...document.querySelectorAll("tr[data-alert]")].map((row) => row.getAttribute("data-alert"));
    expect(rows).toEqual(["latency n2 1", "utilization n1 eth1 2"]);
    expect(rowOf("latency n2 1").getByText("413 ms")).toBeTruthy();
    expect(rowOf("utilization n1 eth1 2").getByText("(50 %)")).toBeTruthy();
    fireEvent.click(rowOf("latency n2 1").getByRole("button", { name: "Seen" }));
    await waitFor(() => expect(rowOf("latency n2 1").getByText("seen")).toBeTruthy());
    expect(host.received).toContainEqual(expect.objectContaining({ method: "alerts.acknowledge", params: { alertIds: ["latency n2 1"] } }));
    fireEvent.click(screen.getByRole("checkbox", { name: "Not seen yet" }));
    expect((await screen.findByTestId("empty-state")).textContent).toContain("Nothing is out of bounds");
  });
  it("changes a limit, refuses one that the rule does not take, and goes back to the standard", async () => {
    const { host } = renderOver(<AlertsPage />);
    const field = await screen.findByRole<HTMLInputElement>("textbox", { name: "Limit: Slow operation" });
    const rule = within(document.querySelector<HTMLElement>('[data-rule="latency"]')!);
    fireEvent.change(field, { target: { value: "0" } });
    expect(rule.getByRole<HTMLButtonElement>("button", { name: "Save" }).disabled).toBe(true);
    fireEvent.change(field, { target: { value: "250" } });
    fireEvent.click(rule.getByRole("button", { name: "Save" }));
    await waitFor(() => expect(host.thresholds.latency).toEqual({ enabled: true, value: 250 }));
    fireEvent.click(await rule.findByRole("button", { name: "back to 100 ms" }));
    await waitFor(() => expect(host.thresholds.latency.value).toBe(100));
    fireEvent.click(screen.getByRole("checkbox", { name: /^Timeout/ }));
    await waitFor(() => expect(host.thresholds.timeout).toEqual({ enabled: false, value: null }));
  });
  it("draws at most five nodes and says how many it left out; asks anew for another measure or span", async () => {
    const { host } = renderOver(<AlertsPage />, { fleet: 20 });
    const chart = within(await screen.findByTestId("history-chart"));
    await waitFor(() => expect(chart.getByText(/^and \d+ nodes? with lower peaks$/)).toBeTruthy());
    fireEvent.change(chart.getByRole("combobox"), { target: { value: "op_latency_ms" } });
    fireEvent.click(chart.getByText("7 d"));
    await waitFor(() => {
      const last = host.received.filter((message) => message.type === "request" && message.method === "history.get").at(-1) as { params: { metric: string; fromMs: number; toMs: number } };
      expect(last.params.metric).toBe("op_latency_ms");
      expect(last.params.toMs - last.params.fromMs).toBe(604_800_000);
    });
  });
});

it("words", () => {
  const t = createI18n("en").t;
  expect([measureText("latency", 1234.5, t), measureText("failure_rate", 0.123456, t), measureText("timeout", 3, t), measureText("timeout", null, t)]).toEqual(["1230 ms", "0.123 %", "3", "any"]);
  expect([metricText("cpu_percent", 12.345), metricText("ops_per_second", 7)]).toEqual(["12.3 %", "7/s"]);
  expect(timeTick(new Date(2026, 10, 30, 9, 5).getTime(), "day")).toBe("09:05");
  expect(timeTick(new Date(2026, 10, 30, 9, 5).getTime(), "week")).toBe("11-30 09:05");
});
