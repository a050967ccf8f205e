import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { beforeEach, describe, expect, it } from "vitest";
import { renderOver } from "../dev/render.js";
import { DiagnosePage } from "./DiagnosePage.js";
import { alike } from "./Evidence.js";
import { splitLines } from "./lines.js";

beforeEach(() => { window.location.hash = "#/diagnose"; });

/** The page with the report of gpu-02, which has two causes, a consequence and a note. */
async function openReport() {
  const rendered = renderOver(<DiagnosePage />);
  await screen.findByText("gpu-03");
  fireEvent.click(rendered.container.querySelector('[data-row-id="n2"]')!);
  await screen.findByTestId("node-report");
  return rendered;
}

describe("findings of a node", () => {
  it("show the proof with its meaning, what speaks against, causes in order and the exact commands with their risk", async () => {
    await openReport();
    const finding = screen.getAllByTestId("finding")[0]!;
    expect(finding.dataset.class).toBe("perm.dma_device_node");
    expect(within(finding).getByText("root:root 600 /dev/dma_device")).toBeTruthy();
    expect(within(finding).getByText("expected root:stepccl 660")).toBeTruthy();
    expect(within(finding).getByText("the driver itself is loaded")).toBeTruthy();
    expect([...finding.querySelectorAll("ol li")].map((item) => item.textContent)).toEqual(["No udev rule sets group and mode.", "The user is not in the group."]);
    expect(within(finding).getByText("Restarts a service")).toBeTruthy();
    expect(within(screen.getByTestId("cannot-tell")).getByText(/needs nvidia-smi/)).toBeTruthy();
    expect(within(screen.getByTestId("source-lspci")).getByText("Not permitted")).toBeTruthy();
  });

  it("fold consequences under their cause and harmless notes at the end", async () => {
    await openReport();
    const roots = screen.getAllByTestId("finding").filter((card) => card.parentElement!.closest("details") === null);
    expect(roots.map((card) => card.dataset.class)).toEqual(["perm.dma_device_node", "link.mtu_mismatch"]);
    expect(within(screen.getByTestId("consequences")).getByTestId("finding").dataset.class).toBe("agent.down");
    expect(within(screen.getByTestId("notes")).getByTestId("finding").dataset.class).toBe("driver.de003");
  });

  it("open the raw text of a source with its hostile characters visible and its markup as text", async () => {
    await openReport();
    fireEvent.click(within(screen.getByTestId("source-dmesg")).getByRole("button"));
    fireEvent.change(await screen.findByRole("textbox", { name: "Find in lines" }), { target: { value: "evil" } });
    const text = screen.getByRole("region", { name: "Raw text" });
    await waitFor(() => expect(text.textContent).toContain("\u241b[2J"));
    expect(text.textContent).toContain("<script>alert(1)</script>");
    expect(text.querySelector("script")).toBeNull();
  });

  it("show a long source whole, so that the numbers of quoted lines are right, from its first piece to its last", async () => {
    const { host } = await openReport();
    fireEvent.click(within(screen.getByTestId("source-dmesg")).getByRole("button"));
    await screen.findByRole("textbox", { name: "Find in lines" });
    const asked = host.received.filter((message) => (message as { method?: string }).method === "diagnose.source") as { params: { fromChar: number } }[];
    expect(asked.length).toBeGreaterThan(1);
    expect(asked.map((message) => message.params.fromChar)).toEqual(asked.map((_, index) => index * 64));
    const text = screen.getByRole("region", { name: "Raw text" });
    await waitFor(() => expect(text.textContent).toContain("1[    0.000000] the first line of all"));
    expect(screen.queryByText(/left out/)).toBeNull();
  });

  it("come together by cause, and a node's name leads to its report", async () => {
    renderOver(<DiagnosePage />);
    const overview = await screen.findByTestId("overview");
    const row = overview.querySelector<HTMLElement>('[data-class="link.mtu_mismatch"]')!;
    fireEvent.click(within(row).getByText("gpu-02"));
    expect((await screen.findByTestId("node-report")).dataset.node).toBe("n2");
  });
});

describe("checks", () => {
  it("run on the chosen nodes", async () => {
    const { host } = renderOver(<DiagnosePage />, { history: false });
    await screen.findByText("gpu-03");
    fireEvent.click(screen.getByRole("checkbox", { name: "Select gpu-03" }));
    fireEvent.click(screen.getByRole("button", { name: "Check 1 node" }));
    await waitFor(() => expect(screen.getByTestId("node-report").dataset.state).toBe("done"));
    expect(host.received).toContainEqual(expect.objectContaining({ method: "diagnose.start", params: { nodeIds: ["n3"] } }));
    expect(screen.getByTestId("verdict").dataset.verdict).toBe("healthy");
  });

  it("show nothing but the way to add nodes where there is none; files can be judged all the same", async () => {
    renderOver(<DiagnosePage />, { fleet: 0 });
    await screen.findByText("Nothing to diagnose yet");
    fireEvent.click(screen.getByTestId("view-files"));
    fireEvent.change(await screen.findByRole("textbox", { name: "Paste text of a machine" }), { target: { value: "open /dev/dma_device: permission denied" } });
    fireEvent.click(screen.getByTestId("judge-text"));
    const result = await screen.findByTestId("file-result");
    expect(result.dataset.verdict).toBe("cause_found");
    // There is no node behind a text: commands are shown, and none can be applied.
    expect(within(result).getAllByRole("button", { name: "Copy the command" }).length).toBeGreaterThan(0);
    expect(within(result).queryByRole("button", { name: "Apply…" })).toBeNull();
  });
});

describe("evidence", () => {
  it("that says the same at another time is folded under the first", () => {
    const piece = (line: string, source = "kernel_log") => ({ source, line, lineNumber: null, meaning: null });
    const same = [piece("[ 1585.906092] DMAR: fault"), piece("[ 1588.868299] DMAR: fault"), piece("2026-11-30T17:00:01+0000 DMAR: fault")];
    expect(alike([same[0]!, piece("[ 1585.906092] DMAR: other"), same[1]!, piece("[ 1.0] DMAR: fault", "service_log"), same[2]!]).map((group) => group.length)).toEqual([3, 1, 1]);
    expect(alike([piece("192.168.0.1: lost"), piece("192.168.0.2: lost")]).map((group) => group.length)).toEqual([1, 1]);
  });
});

describe("lines", () => {
  it("are numbered as in the source and long ones come in pieces under one number", () => {
    expect(splitLines("")).toEqual([]);
    expect(splitLines("a\r\nb\n")).toEqual([{ number: 1, text: "a" }, { number: 2, text: "b" }]);
    expect(splitLines(`a\n${"x".repeat(4100)}\nb`).map((line) => [line.number, line.text.length])).toEqual([[1, 1], [2, 2000], [2, 2000], [2, 100], [3, 1]]);
  });
});
