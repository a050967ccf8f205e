import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { beforeEach, describe, expect, it } from "vitest";
import type { MendRunView } from "../../../electron/contract/index.js";
import { renderOver } from "../../dev/render.js";
import { DiagnosePage } from "../DiagnosePage.js";
import { newestRun, settledRuns } from "./runs.js";

beforeEach(() => { window.location.hash = "#/diagnose?nodes=n2"; });

async function openDialog(command: string) {
  const rendered = renderOver(<DiagnosePage />);
  await screen.findByTestId("node-report");
  const row = (await screen.findByText(command)).closest<HTMLElement>("[data-risk]")!;
  fireEvent.click(within(row).getByRole("button", { name: "Apply…" }));
  const dialog = await screen.findByRole("dialog");
  await within(dialog).findByText(/Read again afterwards/);
  return { ...rendered, dialog };
}
const sent = (host: { received: unknown[] }, method: string) => host.received.filter((message) => (message as { method?: string }).method === method) as Array<{ params: Record<string, unknown> }>;

describe("a mend", () => {
  it("runs only what was consented to, shows its output and the re-test, and stays when its fault is gone", async () => {
    const { host, dialog } = await openDialog("udevadm control --reload && udevadm trigger --name-match=dma_device");
    expect(document.activeElement).toBe(within(dialog).getByRole("button", { name: "Cancel" }));
    expect(sent(host, "mends.apply")).toEqual([]);
    fireEvent.click(within(dialog).getByTestId("apply-mend"));
    await waitFor(() => expect(sent(host, "mends.apply")).toHaveLength(1));
    expect(sent(host, "mends.apply")[0]!.params).toEqual({ offerId: "offer-1", commands: ["udevadm control --reload && udevadm trigger --name-match=dma_device"] });
    expect(await screen.findByRole("log")).toBeTruthy();
    const settled = await screen.findByTestId("settled-mend");
    await waitFor(() => expect(settled.dataset.state).toBe("mended"));
    expect(within(settled).getByTestId("before-after").textContent).toContain("Not found any more");
    expect(within(settled).getByText(/root:stepccl 660/)).toBeTruthy();
    // The finding is gone; nothing stands in its place.
    expect(screen.queryAllByTestId("finding").some((card) => card.dataset.class === "perm.dma_device_node")).toBe(false);
  });

  it("that destroys takes the node's name, typed", async () => {
    const { host, dialog } = await openDialog("rm -rf /var/lib/stepccl/cache");
    const apply = within(dialog).getByTestId("apply-mend");
    expect(apply.hasAttribute("disabled")).toBe(true);
    fireEvent.change(within(dialog).getByTestId("second-consent"), { target: { value: "gpu-03" } });
    expect(apply.hasAttribute("disabled")).toBe(true);
    fireEvent.change(within(dialog).getByTestId("second-consent"), { target: { value: "gpu-02" } });
    fireEvent.click(apply);
    await waitFor(() => expect(sent(host, "mends.apply")[0]?.params).toMatchObject({ secondConsent: "gpu-02" }));
  });

  it("is asked for anew when another command is ticked, and none is none", async () => {
    const { host, dialog } = await openDialog("systemctl restart stepccld");
    fireEvent.click(within(dialog).getByRole("checkbox", { name: /Applies the installed rule/ }));
    await waitFor(() => expect(sent(host, "mends.offer").at(-1)!.params.mendIds).toEqual(["device-node", "restart"]));
    for (const box of within(dialog).getAllByRole<HTMLInputElement>("checkbox")) if (box.checked) fireEvent.click(box);
    await within(dialog).findByText("Choose at least one command.");
    expect(within(dialog).getByTestId("apply-mend").hasAttribute("disabled")).toBe(true);
  });

  it("that did not help says so on the card", async () => {
    const { dialog } = await openDialog("ip link set eth1 mtu 9000");
    expect(within(dialog).getByText("Jobs that run on this node are interrupted.")).toBeTruthy();
    fireEvent.click(within(dialog).getByTestId("apply-mend"));
    await waitFor(() => expect(screen.getByTestId("mend-run").dataset.state).toBe("not_mended"));
    expect(screen.getByTestId("mend-run").closest<HTMLElement>('[data-testid="finding"]')!.dataset.class).toBe("link.mtu_mismatch");
  });
});

describe("runs of mends", () => {
  const run = (id: string, findingId: string, startedAtMs: number, endedAtMs: number | null = startedAtMs + 1): MendRunView =>
    ({ id, nodeId: "n1", findingId, class: "a.b", title: { en: "", zh: "" }, startedAtMs, endedAtMs, state: "mended", steps: [], before: { atMs: 0, finding: null, others: [], readings: [] }, after: null, historyUntil: null, error: null });
  it("the newest of a finding counts", () => {
    expect(newestRun([run("1", "f", 1), run("2", "f", 3), run("3", "g", 9)], "n1", "f")?.id).toBe("2");
    expect(newestRun([run("1", "f", 1)], "n2", "f")).toBeNull();
  });
  it("those of findings that are gone stand alone, unless they are old", () => {
    const runs = [run("old", "f", 1), run("1", "f", 100), run("2", "f", 200), run("3", "still-there", 300), run("4", "g", 400, null)];
    expect(settledRuns(runs, "n1", new Set(["still-there"]), 50).map((each) => each.id)).toEqual(["4", "2"]);
  });
});
