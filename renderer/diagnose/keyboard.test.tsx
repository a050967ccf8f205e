import { screen, waitFor, within } from "@testing-library/react";
import { beforeEach, describe, expect, it } from "vitest";
import { named, press, tab, tabTo } from "../dev/keyboard.js";
import { renderOver } from "../dev/render.js";
import { Shell } from "../app/Shell.js";

beforeEach(() => { window.location.hash = "#/nodes"; });
const commandOf = (stop: HTMLElement): string => stop.closest("[data-risk]")?.querySelector("code")?.textContent ?? "";
// By role they would be looked for in the whole page, again and again.
const dialogNow = () => document.querySelector<HTMLElement>('[role="dialog"]');
const openDialog = () => waitFor(() => { const dialog = dialogNow(); expect(dialog).not.toBeNull(); return dialog!; });

describe("without a mouse", () => {
  it("a fault is found, mended and seen to be mended, and the focus is never lost", async () => {
    renderOver(<Shell />, { stepMs: 30 });
    await screen.findByTestId("nodes-table");
    press("g");
    press("d");
    await screen.findByTestId("overview");
    expect(document.activeElement?.id).toBe("main");
    tabTo(named("Check all nodes"), 8);
    press("Enter");
    await screen.findByText("Cancel the checks");
    await screen.findByTestId("run-checks", {}, { timeout: 20_000 });
    // One stop for the whole list; moving chooses, Enter goes to the report.
    tabTo((stop) => stop.dataset.testid === "diagnose-nodes");
    await waitFor(() => { press("ArrowDown"); expect(screen.getByTestId("node-report").dataset.node).toBe("n2"); });
    press("Enter");
    expect(document.activeElement?.getAttribute("aria-label")).toBe("What was found on gpu-02");
    tabTo((stop) => named("Apply…")(stop) && commandOf(stop).startsWith("udevadm"));
    press("Enter");
    const dialog = await openDialog();
    await within(dialog).findByText(/Read again afterwards/);
    await waitFor(() => expect(document.activeElement).toBe(within(dialog).getByText("Cancel").closest("button")));
    tab();
    expect(document.activeElement).toBe(within(dialog).getByTestId("apply-mend"));
    press("Enter");
    await waitFor(() => expect(dialogNow()).toBeNull());
    // The run has the focus, and keeps it when its card moves to those that are settled.
    await waitFor(() => expect(document.activeElement?.getAttribute("data-testid")).toBe("mend-run"));
    const settled = await screen.findByTestId("settled-mend");
    await waitFor(() => expect(settled.dataset.state).toBe("mended"));
    await waitFor(() => expect(settled.contains(document.activeElement)).toBe(true));
  });

  it("a dialog that is left gives the focus back to what opened it", async () => {
    window.location.hash = "#/diagnose?nodes=n2";
    renderOver(<Shell />);
    await screen.findByTestId("node-report");
    const opener = tabTo(named("Apply…"));
    press("Enter");
    const dialog = await openDialog();
    await waitFor(() => expect(dialog.contains(document.activeElement)).toBe(true));
    press("Escape");
    await waitFor(() => expect(document.activeElement).toBe(opener));
  });

  it("a fault of many nodes is opened and mended on all of them", async () => {
    window.location.hash = "#/diagnose";
    renderOver(<Shell />, { fleet: 14, stepMs: 20 });
    await screen.findByTestId("overview");
    const group = tabTo((stop) => stop.hasAttribute("aria-expanded") && stop.closest("[data-testid=fault-group]") !== null);
    press("Enter");
    expect(group.getAttribute("aria-expanded")).toBe("true");
    tabTo(named(/^Apply on 12 nodes/));
    press("Enter");
    const dialog = await openDialog();
    await waitFor(() => expect(document.activeElement).toBe(within(dialog).getByText("Cancel").closest("button")));
    tab();
    press("Enter");
    await waitFor(() => expect(document.activeElement?.getAttribute("data-testid")).toBe("group-run"));
    await waitFor(() => expect(screen.getByTestId("group-run").dataset.state).toBe("done"), { timeout: 20_000 });
    expect(screen.getByText("12 mended")).toBeTruthy();
  });

  it("nodes are picked with one stop of Tab and the arrows", async () => {
    window.location.hash = "#/diagnose?view=guides&guide=dma_init_fails";
    renderOver(<Shell />, { fleet: 300 });
    await screen.findByTestId("guide-start");
    // Of 300 only those in view are in the document.
    expect(document.querySelectorAll("input[type=checkbox]").length).toBeLessThan(60);
    tabTo((stop) => stop.getAttribute("type") === "checkbox");
    press("ArrowDown");
    press("ArrowDown");
    press(" ");
    expect(screen.getByLabelText<HTMLInputElement>("rack01-gpu03").checked).toBe(true);
    expect(tab().dataset.testid).toBe("guide-start");
  });
});
