import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { beforeEach, describe, expect, it } from "vitest";
import { renderOver } from "../dev/render.js";
import { Marked } from "../topology/Marked.js";
import { DiagnosePage } from "./DiagnosePage.js";

const open = (view: string, more = "") => { window.location.hash = `#/diagnose?view=${view}${more}`; };
beforeEach(() => open("nodes"));

describe("a guide", () => {
  it("runs its checks by itself, ends in a card on its node, and can be started again", async () => {
    open("guides", "&guide=dma_init_fails&nodes=n2");
    renderOver(<DiagnosePage />);
    fireEvent.click(await screen.findByTestId("guide-start"));
    const run = await screen.findByTestId("guide-run");
    await waitFor(() => expect(run.dataset.verdict).toBe("cause_found"));
    expect(screen.getAllByTestId("guide-step").map((step) => step.dataset.state)).toEqual(["ok", "ok", "fault", "skipped", "skipped", "skipped"]);
    const card = within(run).getByTestId("finding");
    // What came with the conclusion stands below the checks that were there before it.
    expect(screen.getAllByTestId("guide-step").at(-1)!.compareDocumentPosition(card) & Node.DOCUMENT_POSITION_FOLLOWING).toBeTruthy();
    fireEvent.click(within(run).getByRole("button", { name: "Go to the cause" }));
    expect(document.activeElement?.contains(card)).toBe(true);
    expect(within(card).getByText(/gpu-02/)).toBeTruthy();
    fireEvent.click(within(run).getByRole("button", { name: "Again" }));
    expect(await screen.findByTestId("guide-start")).toBeTruthy();
  });

  it("for a pair wants two nodes, in their order", async () => {
    open("guides", "&guide=rdma_connection_fails&nodes=n1");
    const { host } = renderOver(<DiagnosePage />);
    const start = await screen.findByTestId("guide-start");
    expect(start.hasAttribute("disabled")).toBe(true);
    fireEvent.click(screen.getByRole("checkbox", { name: "gpu-03" }));
    await waitFor(() => expect(start.hasAttribute("disabled")).toBe(false));
    fireEvent.click(start);
    await waitFor(() => expect(host.received).toContainEqual(expect.objectContaining({ method: "guides.start", params: { guideId: "rdma_connection_fails", nodeIds: ["n1", "n3"] } })));
  });

  it("marks the first link that breaks a rule on the topology", async () => {
    open("guides", "&guide=ring_slow&nodes=n1,n2");
    renderOver(<><DiagnosePage /><Marked /></>);
    fireEvent.click(await screen.findByTestId("guide-start"));
    const path = await screen.findByTestId("path");
    expect(path.dataset.broken).toBe("3");
    fireEvent.click(within(path).getByTestId("show-on-topology"));
    expect(window.location.hash).toBe("#/topology");
    const mark = await screen.findByTestId("topology-mark");
    expect(mark.textContent).toContain("gpu-01 → gpu-02");
    expect(mark.textContent).toContain("Both ends need the same MTU");
  });

  it("can be cancelled", async () => {
    open("guides", "&guide=slow&nodes=n1");
    renderOver(<DiagnosePage />, { stepMs: 2000 });
    fireEvent.click(await screen.findByTestId("guide-start"));
    const run = await screen.findByTestId("guide-run");
    fireEvent.click(within(run).getByRole("button", { name: "Cancel" }));
    await waitFor(() => expect(run.dataset.state).toBe("cancelled"));
  });
});

describe("pair tests", () => {
  it("fill a matrix with numbers, name the failing half and the suspect, and tell each pair's story", async () => {
    open("pairs");
    const { container } = renderOver(<DiagnosePage />);
    fireEvent.click(await screen.findByTestId("pairs-start"));
    await waitFor(() => expect(screen.getByTestId("pair-test").dataset.state).toBe("done"));
    expect(screen.getByTestId("suspects").textContent).toContain("gpu-03");
    const failed = container.querySelector<HTMLElement>('[data-pair="n1|n3"]')!;
    expect(failed.dataset.state).toBe("failed");
    expect(failed.textContent).toContain("gpu-03");
    expect(Number(container.querySelector('[data-pair="n1|n2"]')!.textContent)).toBeGreaterThan(1);
    fireEvent.click(failed);
    expect(screen.getByTestId("pair-detail").textContent).toContain("no RoCE v2 GID");
    // From the keyboard over the diagonal.
    fireEvent.keyDown(failed, { key: "ArrowLeft" });
    expect(screen.getByTestId("pair-detail").textContent).toContain("gpu-01 → gpu-02");
  });
});

describe("pair tests of many nodes", () => {
  it("are not begun above what the console takes: the way to fewer is said instead", async () => {
    open("pairs");
    renderOver(<DiagnosePage />, { fleet: 60 });
    await screen.findByText(/at most 2000 tests at once/);
    expect(screen.getByTestId("pairs-start").hasAttribute("disabled")).toBe(true);
    fireEvent.click(screen.getByText("Ring"));
    await waitFor(() => expect(screen.getByTestId("pairs-start").hasAttribute("disabled")).toBe(false));
  });
});

describe("hangs", () => {
  it("name the rank that holds the others up, beside what every rank did last", async () => {
    open("hangs");
    renderOver(<DiagnosePage />);
    fireEvent.click(await screen.findByTestId("hangs-check"));
    const group = await screen.findByTestId("hang-group");
    expect(within(group).getByRole("heading").textContent).toContain("Rank 2 on gpu-03");
    const rows = within(group).getAllByRole("row").slice(1);
    expect(rows[0]!.dataset.testid).toBe("hang-rank-2");
    expect([...rows[0]!.querySelectorAll<HTMLElement>("td[data-state]")].map((cell) => cell.dataset.state)).toEqual(["completed", "started", "not_reached"]);
    expect([...rows[1]!.querySelectorAll<HTMLElement>("td[data-state]")].map((cell) => cell.dataset.state)).toEqual(["completed", "completed", "started"]);
  });
});

describe("a support bundle", () => {
  it("is looked at before it is saved, with what was replaced marked", async () => {
    open("support");
    renderOver(<DiagnosePage />);
    fireEvent.click(await screen.findByTestId("support-prepare"));
    const bundle = await screen.findByTestId("support-bundle");
    expect(within(bundle).getByText("IPv4 addresses")).toBeTruthy();
    fireEvent.click(within(bundle).getByText("node-1/kernel_log.txt"));
    await waitFor(() => expect([...document.querySelectorAll("mark")].map((mark) => mark.textContent)).toEqual(["host-1", "198.18.0.1", "198.18.0.2"]));
  });

  it("of another console opens without a cluster", async () => {
    open("files");
    const { container } = renderOver(<DiagnosePage />, { fleet: 0 });
    await screen.findByTestId("choose-files");
    const file = new File(["x".repeat(700_000)], "stepccl-support-20261130.tar.gz");
    fireEvent.change(container.querySelector('input[type="file"]')!, { target: { files: [file] } });
    const opened = await screen.findByTestId("opened-bundle");
    fireEvent.click(within(opened).getByRole("button", { name: "node-2" }));
    expect((await within(opened).findAllByTestId("finding")).length).toBeGreaterThan(0);
    expect(within(opened).queryByRole("button", { name: "Apply…" })).toBeNull();
  });
});
