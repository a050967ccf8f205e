import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { renderOver } from "../dev/render.js";
import { AddNodes } from "./AddNodes.js";
import { HostKeys } from "./HostKeys.js";
import { NodesPage } from "./NodesPage.js";

const page = <><NodesPage /><HostKeys /><AddNodes /></>;

describe("the Nodes page", () => {
  it("says what to do first when there is no node", async () => {
    renderOver(page, { fleet: 0 });
    expect(await screen.findByRole("heading", { name: "No nodes yet" })).toBeTruthy();
  });

  it("shows each node with its state as a word, and hostile names as text", async () => {
    const { container } = renderOver(page);
    const row = (await screen.findByText("gpu-06")).closest('[role="row"]') as HTMLElement;
    expect(within(row).getByText("Unreachable")).toBeTruthy();
    expect(within(row).getByText("H207")).toBeTruthy();
    expect(container.querySelector("b")).toBeNull();
    expect(container.textContent).toContain("⟨U+202E⟩");
    expect(container.textContent).toContain("<b>x</b>");
  });

  it("moves, chooses and extends with the keyboard", async () => {
    const { ui } = renderOver(page);
    await screen.findByText("gpu-01");
    const grid = screen.getByRole("grid", { name: "Nodes" });
    for (const key of ["ArrowDown", "ArrowDown", " "]) fireEvent.keyDown(grid, { key });
    expect([...ui.getState().selection]).toEqual(["n1"]);
    fireEvent.keyDown(grid, { key: "ArrowDown", shiftKey: true });
    fireEvent.keyDown(grid, { key: "ArrowDown", shiftKey: true });
    expect([...ui.getState().selection]).toEqual(["n1", "n2", "n3"]);
    fireEvent.keyDown(grid, { key: "Enter" });
    expect(ui.getState().nodeDetail).toBe("n3");
    fireEvent.keyDown(grid, { key: "a", ctrlKey: true });
    expect(ui.getState().selection.size).toBe(11);
    fireEvent.keyDown(grid, { key: "Escape" });
    expect(ui.getState().selection.size).toBe(0);
  });

  it("brings nodes up step by step and keeps a failure of one apart from the others", async () => {
    renderOver(page);
    await screen.findByText("gpu-09");
    fireEvent.click(screen.getByRole("checkbox", { name: "Select gpu-09" }));
    fireEvent.click(screen.getByRole("checkbox", { name: "Select gpu-10" }));
    fireEvent.click(screen.getByRole("button", { name: "Bring up 2 nodes" }));
    const dock = await screen.findByTestId("work-dock");
    await waitFor(() => expect(within(dock).getByTestId("work-n10").dataset.state).toBe("failed"));
    expect(within(dock).getByText("H305")).toBeTruthy();
    await waitFor(() => expect(within(dock).getByTestId("work-n9").dataset.state).toBe("succeeded"));
  });

  it("asks for host keys first, and trusts exactly the fingerprint that it shows", async () => {
    const { host } = renderOver(page);
    await screen.findByText("gpu-07");
    fireEvent.click(screen.getByRole("checkbox", { name: "Select gpu-07" }));
    fireEvent.click(screen.getByRole("button", { name: "Bring up 1 node" }));
    const shown = (await screen.findByTestId("fingerprint")).textContent;
    expect(shown).toMatch(/^SHA256:[A-Za-z0-9+/]{43}$/);
    expect(host.received.some((message) => message.type === "request" && message.method === "nodes.bringUp")).toBe(false);
    fireEvent.click(screen.getByRole("button", { name: "Trust" }));
    await waitFor(() => expect(host.received).toContainEqual(expect.objectContaining({ method: "nodes.trustHostKey", params: { nodeId: "n7", fingerprint: shown } })));
    const dialog = screen.getByRole("dialog");
    fireEvent.click(await within(dialog).findByRole("button", { name: "Bring up 1 node" }));
    await waitFor(() => expect(host.received).toContainEqual(expect.objectContaining({ method: "nodes.bringUp", params: { nodeIds: ["n7"] } })));
  });

  it("does not let a changed key through without a second act, and shows both fingerprints", async () => {
    renderOver(page);
    await screen.findByText("gpu-08");
    fireEvent.click(screen.getByRole("checkbox", { name: "Select gpu-08" }));
    fireEvent.click(screen.getByRole("button", { name: "Confirm host keys" }));
    const trust = await screen.findByRole<HTMLButtonElement>("button", { name: "Trust the new key" });
    expect(trust.disabled).toBe(true);
    expect(screen.getAllByText(/^SHA256:/).filter((element) => element.tagName === "SPAN" && element.closest("dd")).length).toBe(2);
    expect(screen.queryByRole("button", { name: /Trust all/ })).toBeNull();
    fireEvent.click(screen.getByRole("checkbox", { name: /was reinstalled/ }));
    expect(trust.disabled).toBe(false);
  });

  it("shows the host's refusal beside the form, in Chinese where that is the language", async () => {
    const { ui } = renderOver(page, { language: "zh-CN" });
    await screen.findByText("gpu-01");
    ui.getState().set({ addNodes: true });
    const type = async (name: RegExp, value: string) => fireEvent.change(await screen.findByRole("textbox", { name }), { target: { value } });
    await type(/主机名或地址/, "10.0.2.1");
    await type(/^用户/, "ops");
    fireEvent.click(screen.getByTestId("add-submit"));
    const note = await screen.findByTestId("error-note");
    expect(note.dataset.code).toBe("H302");
    expect(note.textContent).toContain("地址为 10.0.2.1:22、用户为 ops 的节点已存在");
  });

  it("says which field is wrong before anything is sent", async () => {
    const { ui, host } = renderOver(page);
    await screen.findByText("gpu-01");
    ui.getState().set({ addNodes: true });
    fireEvent.change(await screen.findByRole("textbox", { name: /Host name/ }), { target: { value: "-oProxyCommand=reboot" } });
    fireEvent.click(screen.getByTestId("add-submit"));
    expect(await screen.findByText("A host name or an IP address is needed.")).toBeTruthy();
    expect(screen.getByText("A user name is needed.")).toBeTruthy();
    expect(host.received.some((message) => message.type === "request" && message.method === "nodes.add")).toBe(false);
  });

  it("keeps a thousand nodes out of the document but in the count", async () => {
    const { container } = renderOver(page, { fleet: 1000 });
    await screen.findByText("rack01-gpu01");
    expect(screen.getByRole("grid", { name: "Nodes" }).getAttribute("aria-rowcount")).toBe("1001");
    expect(container.querySelectorAll("[data-row-id]").length).toBeLessThan(80);
  });
});
