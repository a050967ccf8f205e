import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { renderOver } from "../dev/render.js";
import { DiagnosePage } from "./DiagnosePage.js";
import { splitLines } from "./lines.js";

describe("the Diagnose page", () => {
  it("shows findings with evidence, mend and risk, and what cannot be told", async () => {
    const { container } = renderOver(<DiagnosePage />);
    await screen.findByText("gpu-02");
    fireEvent.click(container.querySelector('[data-row-id="n2"]')!);
    const finding = (await screen.findAllByTestId("finding"))[0]!;
    expect(finding.dataset.class).toBe("perm.dma_device_node");
    expect(within(finding).getByText("root:root 600 /dev/dma_device")).toBeTruthy();
    expect(within(finding).getByText("Restarts a service")).toBeTruthy();
    expect(within(screen.getByTestId("cannot-tell")).getByText(/needs nvidia-smi/)).toBeTruthy();
    expect(within(screen.getByTestId("source-lspci")).getByText("Not permitted")).toBeTruthy();
  });

  it("opens the raw text of a source with its hostile characters visible and its markup as text", async () => {
    const { container } = renderOver(<DiagnosePage />);
    await screen.findByText("gpu-02");
    fireEvent.click(container.querySelector('[data-row-id="n2"]')!);
    fireEvent.click(within(await screen.findByTestId("source-dmesg")).getByRole("button"));
    fireEvent.change(await screen.findByRole("textbox", { name: "Find in lines" }), { target: { value: "evil" } });
    const text = screen.getByRole("region", { name: "Raw text" });
    await waitFor(() => expect(text.textContent).toContain("\u241b[2J"));
    expect(text.textContent).toContain("<script>alert(1)</script>");
    expect(text.querySelector("script")).toBeNull();
  });

  it("checks the chosen nodes", async () => {
    const { host } = renderOver(<DiagnosePage />, { history: false });
    await screen.findByText("gpu-03");
    fireEvent.click(screen.getByRole("checkbox", { name: "Select gpu-03" }));
    fireEvent.click(screen.getByRole("button", { name: "Check 1 node" }));
    await waitFor(() => expect(screen.getByTestId("node-report").dataset.state).toBe("done"));
    expect(host.received).toContainEqual(expect.objectContaining({ method: "diagnose.start", params: { nodeIds: ["n3"] } }));
    expect(screen.getByText("Nothing found; everything could be read")).toBeTruthy();
  });
});

describe("lines", () => {
  it("are numbered as in the source and long ones come in pieces under one number", () => {
    expect(splitLines("")).toEqual([]);
    expect(splitLines("a\r\nb\n")).toEqual([{ number: 1, text: "a" }, { number: 2, text: "b" }]);
    expect(splitLines(`a\n${"x".repeat(4100)}\nb`).map((line) => [line.number, line.text.length])).toEqual([[1, 1], [2, 2000], [2, 2000], [2, 100], [3, 1]]);
  });
});
