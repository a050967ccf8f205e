import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { renderOver } from "../dev/render.js";
import { parseSize } from "../shared/format.js";
import { SettingsPage } from "./SettingsPage.js";
import { common, parseValue } from "./words.js";

const row = (name: string) => within(document.querySelector<HTMLElement>(`tr[data-setting="${name}"]`)!);

describe("the Settings page", () => {
  it("shows each setting with what is recommended and why, and applies the recommendation to all nodes", async () => {
    const { host } = renderOver(<SettingsPage />);
    await waitFor(() => expect(row("pipeline_depth").getByText(/one-way latency of 31 µs/)).toBeTruthy());
    expect(screen.queryByTestId("settings-staged")).toBeNull();
    fireEvent.click(row("pipeline_depth").getByRole("button", { name: "Use" }));
    fireEvent.click(screen.getByTestId("settings-apply"));
    await waitFor(() => expect(row("pipeline_depth").getAllByText("8").length).toBeGreaterThan(0));
    const sent = host.received.find((message) => message.type === "request" && message.method === "settings.set");
    expect(sent).toMatchObject({ params: { changes: { pipeline_depth: 8 } } });
    expect((sent as { params: { nodeIds: string[] } }).params.nodeIds.length).toBeGreaterThan(1);
    await waitFor(() => expect(within(screen.getByTestId("settings-history")).getAllByText("not set → 8").length).toBeGreaterThan(1));
    expect(screen.queryByTestId("settings-staged")).toBeNull();
  });
  it("changes one node, says where nodes differ, and sends nothing that the contract refuses", async () => {
    const { host } = renderOver(<SettingsPage />);
    await screen.findByTestId("settings-table");
    await waitFor(() => expect(screen.getByRole<HTMLSelectElement>("combobox").options.length).toBeGreaterThan(2));
    fireEvent.change(screen.getByRole("combobox"), { target: { value: "n1" } });
    const field = row("page_bytes").getByRole("textbox");
    fireEvent.change(field, { target: { value: "5000" } });
    expect(row("page_bytes").getByText(/power of two/)).toBeTruthy();
    expect(screen.getByTestId<HTMLButtonElement>("settings-apply").disabled).toBe(true);
    fireEvent.change(field, { target: { value: "64M" } });
    fireEvent.click(row("paging").getByText("on"));
    fireEvent.click(screen.getByTestId("settings-apply"));
    await waitFor(() => expect(host.received).toContainEqual(expect.objectContaining({ method: "settings.set", params: { nodeIds: ["n1"], changes: { page_bytes: 64 * 1024 ** 2, paging: true } } })));
    fireEvent.change(screen.getByRole("combobox"), { target: { value: "" } });
    await waitFor(() => expect(row("paging").getByText("differs")).toBeTruthy());
  });
  it("switches the encryption of the data path on", async () => {
    const { host } = renderOver(<SettingsPage />);
    await screen.findByTestId("settings-table");
    await waitFor(() => expect(row("encryption").getByText(/TLS 1.3/)).toBeTruthy());
    fireEvent.click(row("encryption").getByText("on"));
    fireEvent.click(screen.getByTestId("settings-apply"));
    await waitFor(() => expect(host.received).toContainEqual(expect.objectContaining({ method: "settings.set", params: expect.objectContaining({ changes: { encryption: true } }) })));
  });
  it("says that nothing can be set while no node is up", async () => {
    renderOver(<SettingsPage />, { fleet: 0 });
    expect((await screen.findByTestId("empty-state")).textContent).toContain("No node is up");
  });
});

describe("values", () => {
  it.each([["pipeline_depth", "8", 8], ["pipeline_depth", "", null], ["pipeline_depth", "0", undefined], ["pipeline_depth", "8.5", undefined], ["page_bytes", "128M", 128 * 1024 ** 2], ["page_bytes", "100M", undefined], ["paging", "1", undefined]] as const)("%s %j -> %s", (name, text, value) => {
    expect(parseValue(name, text, parseSize)).toBe(value);
  });
  it("are common where all are the same", () => expect([common([1, 1]), common([1, 2]), common([]), common([null, null])]).toEqual([1, undefined, undefined, null]));
});

describe("acknowledgements", () => {
  it("say for each setting in how many processes it is in force, waits or is refused, and why", async () => {
    const { host } = renderOver(<SettingsPage />);
    for (const id of ["n1", "n2"]) host.settings.set(id, { pipeline_depth: 8, sm_budget: 16 });
    const acks = async (name: string) => (await screen.findByTestId(`acks-${name}`)).textContent;
    await waitFor(async () => expect(await acks("pipeline_depth")).toMatch(/6 processes wait.*next common call.*in force in 10 processes.*3 processes use their own/), { timeout: 5000 });
    expect(await acks("sm_budget")).toMatch(/4 processes refuse.*cannot take this value.*in force in 12 processes/);
    expect(screen.getByTestId("acks-sm_budget").querySelector('[data-state="refused"]')!.getAttribute("title")).toMatch(/gpu-01 · rank 6\/16 .*: by size, refused/);
    expect(screen.getByTestId("acks-compression").textContent).toBe("");
    fireEvent.change(screen.getByRole("combobox"), { target: { value: "n2" } });
    expect(await acks("sm_budget")).toMatch(/2 processes refuse.*in force in 6 processes/);
  });
  it("a share of the GPU's memory is written in per cent and sent in permille", async () => {
    const { host } = renderOver(<SettingsPage />);
    await screen.findByTestId("settings-table");
    await waitFor(() => expect(screen.getByRole<HTMLSelectElement>("combobox").options.length).toBeGreaterThan(2));
    const field = row("hbm_cache_ratio_permille").getByRole("textbox");
    fireEvent.change(field, { target: { value: "95%" } });
    expect(row("hbm_cache_ratio_permille").getByText("0.1% to 90%")).toBeTruthy();
    fireEvent.change(field, { target: { value: "12.5 %" } });
    fireEvent.click(screen.getByTestId("settings-apply"));
    await waitFor(() => expect(host.received).toContainEqual(expect.objectContaining({ method: "settings.set", params: expect.objectContaining({ changes: { hbm_cache_ratio_permille: 125 } }) })));
  });
});
