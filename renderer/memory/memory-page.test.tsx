import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import type { PoolRange } from "../../electron/contract/index.js";
import { renderOver } from "../dev/render.js";
import { axisOf } from "./strip.js";
import { MemoryPage } from "./MemoryPage.js";
import { rowIdsOf, rowOf } from "./store.js";

const subscriptions = (received: readonly { type: string; id: number; stream?: string }[]): number[] => {
  const open = new Set<number>();
  for (const message of received) {
    if (message.type === "subscribe" && message.stream === "memory") open.add(message.id);
    else if (message.type === "cancel") open.delete(message.id);
  }
  return [...open];
};
// By attribute: a query by role computes the whole tree of a page with many rows.
const rowsIn = (testId: string): HTMLElement[] => [...screen.getByTestId(testId).querySelectorAll<HTMLElement>("[data-row-id]")];
const rowsOf = (text: string): HTMLElement[] => rowsIn("memory-table").filter((row) => row.textContent?.includes(text));
const filter = (): HTMLElement => screen.getByPlaceholderText("Filter by node, job or GPU");
const sortBy = (header: string): void => void fireEvent.click(within(screen.getByTestId("memory-table")).getByText(header));

describe("the Memory page", () => {
  it("has a row for each process and each idle GPU, and opens the first pool by itself", async () => {
    renderOver(<MemoryPage />);
    const detail = await screen.findByTestId("pool-detail");
    await screen.findByTestId("pool-map");
    expect(detail.dataset["row"]).toBe("n1/4000.0.00000000deadbeef");
    expect(rowsOf("rank 0/16")[0]!.textContent).toMatch(/gpu-01.*14\.1 GiB/);
    expect(rowsOf("gpu-03").filter((row) => row.textContent?.includes("no process"))).toHaveLength(6);
    expect(screen.getByText(/Older daemons.*gpu-05/)).toBeTruthy();
    expect(rowsOf("ended: R203")).toHaveLength(1);
    expect(rowsOf("on, held up")).toHaveLength(1);
  });
  it("makes what a node says visible, never an order of characters or markup", async () => {
    renderOver(<MemoryPage />);
    await screen.findByTestId("pool-detail");
    expect(rowsOf("bench⟨U+202E⟩").length).toBeGreaterThan(0);
  });
  it("walks the map with the keyboard and says where and how large each part is", async () => {
    renderOver(<MemoryPage />);
    const strip = (await screen.findAllByTestId("pool-strip"))[0]!;
    fireEvent.focus(strip);
    expect(screen.getByTestId("range-words").textContent).toBe("Engine: 64 MiB, 0x0 to 0x4000000");
    fireEvent.keyDown(strip, { key: "ArrowRight" });
    expect(screen.getByTestId("range-words").textContent).toMatch(/^Buffers: .*0x4000000 to /);
    expect(strip.getAttribute("aria-activedescendant")).toBe(within(strip).getByRole("option", { selected: true }).id);
    fireEvent.keyDown(strip, { key: "End" });
    fireEvent.keyDown(strip, { key: "ArrowRight" });
    expect(within(strip).getAllByRole("option").at(-1)!.getAttribute("aria-selected")).toBe("true");
    fireEvent.blur(strip);
    expect(screen.getByTestId("range-words").textContent).toContain("arrow keys");
  });
  it("shows the map as it was before the last epoch, and switches defragmentation for that node alone", async () => {
    const { host } = renderOver(<MemoryPage />);
    await screen.findByText(/Before the last epoch, seen/);
    fireEvent.click(screen.getByTestId("defrag-switch"));
    await waitFor(() => expect(host.received).toContainEqual(expect.objectContaining({ method: "settings.set", params: { nodeIds: ["n1"], changes: { hbm_defrag: false } } })));
    await waitFor(() => expect(screen.getByTestId("defrag-switch").textContent).toContain("Turn defragmentation on for gpu-01"));
    expect(document.querySelector('[data-testid="acks"] tr[data-setting="hbm_defrag"]')!.textContent).toContain("in force");
  });
  it("looks at one pool a second and lets go of pool and stream when it is left", async () => {
    const { host, unmount } = renderOver(<MemoryPage />);
    await screen.findByTestId("pool-map");
    expect(subscriptions(host.received as never)).toHaveLength(1);
    unmount();
    expect(subscriptions(host.received as never)).toHaveLength(0);
    const looks = host.received.filter((message) => message.type === "request" && message.method === "memory.map").length;
    await new Promise((done) => setTimeout(done, 1300));
    expect(host.received.filter((message) => message.type === "request" && message.method === "memory.map")).toHaveLength(looks);
  });
  it("keeps a silent node's last words, marked as old", async () => {
    renderOver(<MemoryPage />);
    await screen.findByTestId("pool-detail");
    fireEvent.click(rowsOf("gpu-04").find((row) => row.textContent?.includes("rank"))!);
    expect(await screen.findByText(/Silent: written 1\d s ago/)).toBeTruthy();
    expect(screen.getByTestId("memory-failed").textContent).toMatch(/1 node does not answer: gpu-04.*H401.*cannot be reached/);
  });
  it("filters and sorts; what is not known stands last", async () => {
    renderOver(<MemoryPage />);
    await screen.findByTestId("pool-detail");
    fireEvent.change(filter(), { target: { value: "gpu-02 rank" } });
    expect(rowsOf("gpu-02")).toHaveLength(8);
    expect(rowsOf("gpu-01")).toHaveLength(0);
    fireEvent.change(filter(), { target: { value: "nothing like it" } });
    expect(screen.getByText("Nothing matches.")).toBeTruthy();
    fireEvent.change(filter(), { target: { value: "gpu-03" } });
    sortBy("Fragmented");
    expect(rowsOf("gpu-03")[0]!.textContent).toContain("rank");
    sortBy("Fragmented");
    expect(rowsOf("gpu-03")[0]!.textContent).toContain("rank");
    fireEvent.click(screen.getByLabelText("Only GPUs in use"));
    expect(rowsOf("gpu-03")).toHaveLength(2);
  });
  it("says what to do where no process uses a GPU, and where no node has told anything", async () => {
    const { host, unmount } = renderOver(<MemoryPage />);
    host.memory.quiet = true;
    await waitFor(() => expect(screen.getByTestId("empty-state").textContent).toMatch(/No GPU process publishes now.*init_process_group/), { timeout: 5000 });
    expect(rowsOf("no process").length).toBeGreaterThan(0);
    unmount();
    renderOver(<MemoryPage />, { fleet: 0 });
    await waitFor(() => expect(screen.getByTestId("empty-state").textContent).toContain("No node has told of its memory yet"));
  });
  it("has the hosts' memory beside it", async () => {
    renderOver(<MemoryPage />);
    await screen.findByTestId("pool-detail");
    fireEvent.click(screen.getByText("Host memory"));
    await screen.findByTestId("host-memory-table");
    await waitFor(() => expect(rowsIn("host-memory-table").find((row) => row.textContent?.includes("gpu-01"))!.textContent).toMatch(/768 GiB.*700 GiB.*8\.9%/));
  });
  it("holds only the visible rows of a large fleet", async () => {
    renderOver(<MemoryPage />, { fleet: 300 });
    await screen.findByTestId("pool-detail");
    expect(rowsIn("memory-table").length).toBeLessThan(100);
  });
});

describe("the axis of addresses", () => {
  const range = (offset: number, bytes: number): PoolRange => ({ offset, bytes, kind: "buffer" });
  it("gives memory its size and cuts stretches without any short", () => {
    const axis = axisOf([[range(0, 100), range(1e12, 100)]], 206);
    expect([0, 50, 100].map((offset) => Math.round(axis.x(offset)))).toEqual([0, 50, 100]);
    expect([1e12, 1e12 + 100].map((offset) => Math.round(axis.x(offset)))).toEqual([106, 206]);
    expect(axis.breaks).toMatchObject([{ bytes: 1e12 - 100 }]);
  });
  it("is one for maps that are compared", () => {
    const axis = axisOf([[range(0, 10)], [range(5, 10), range(20, 10)]], 100);
    expect(axis.endBytes).toBe(30);
    expect(axis.x(0)).toBe(0);
    expect(axis.x(30)).toBeCloseTo(100);
    let last = -1;
    for (let at = 0; at <= 30; at++) {
      expect(axis.x(at)).toBeGreaterThan(last);
      last = axis.x(at);
    }
  });
  it("of an empty pool is a point", () => expect([axisOf([[]], 100).x(5), axisOf([], 100).endBytes]).toEqual([0, 0]));
});

describe("rows", () => {
  it("are found by their ids, and not when they are gone", () => {
    const view = { nodeId: "n1", readAtMs: 1, host: { totalBytes: null, availableBytes: null, sampledAtMs: null, daemonRssKib: null }, gpus: [{ index: 0, name: "H200", uuid: null, totalBytes: 1, usedBytes: 0, collectedAtMs: 0 }], processes: [], omitted: 0, damaged: 0, supported: true, error: null };
    const items = new Map([["n1", view]]);
    expect(rowIdsOf(items)).toEqual(["n1/gpu0"]);
    expect(rowOf(items, "n1/gpu0")?.gpu?.name).toBe("H200");
    for (const id of [null, "", "n1", "n1/gpu7", "n2/gpu0", "n1/4.0.ff"]) expect(rowOf(items, id)).toBeUndefined();
  });
});
