import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { renderOver } from "../dev/render.js";
import { CollectivesPage } from "./CollectivesPage.js";

describe("the Collectives page", () => {
  it("runs what the form says, row by row, and ends with #wrong 0", async () => {
    const { host } = renderOver(<CollectivesPage />, { history: false });
    await screen.findByRole("checkbox", { name: "gpu-01" });
    fireEvent.click(screen.getByRole("checkbox", { name: "gpu-04" }));
    fireEvent.change(screen.getByRole("textbox", { name: /^To/ }), { target: { value: "64" } });
    fireEvent.click(screen.getByText("RDMA"));
    fireEvent.click(screen.getByRole("button", { name: "Run" }));
    await waitFor(() => expect(host.received).toContainEqual(expect.objectContaining({ method: "runs.start", params: expect.objectContaining({ nodeIds: ["n1", "n2", "n3"], transport: "rdma", maxBytes: 64 }) })));
    await waitFor(() => expect(screen.getByTestId("run-header").dataset.state).toBe("succeeded"));
    expect(within(screen.getByTestId("run-table")).getAllByRole("row")).toHaveLength(2 + 4);
    expect(within(screen.getByTestId("run-header")).getByText("#wrong 0")).toBeTruthy();
  });

  it("shows a root only where there is one, and the algorithms that the runtime has", async () => {
    const { host } = renderOver(<CollectivesPage />, { history: false });
    await screen.findByRole("checkbox", { name: "gpu-01" });
    expect(screen.queryByRole("combobox", { name: "Root rank" })).toBeNull();
    fireEvent.change(screen.getByRole("combobox", { name: "Operation" }), { target: { value: "broadcast" } });
    expect(screen.queryByRole("combobox", { name: "Reduction" })).toBeNull();
    fireEvent.change(screen.getByRole("combobox", { name: "Root rank" }), { target: { value: "2" } });
    await screen.findByRole("option", { name: "binomial" });
    fireEvent.change(screen.getByRole("combobox", { name: "Algorithm" }), { target: { value: "binomial" } });
    fireEvent.click(screen.getByRole("button", { name: "Run" }));
    await waitFor(() => expect(host.received).toContainEqual(expect.objectContaining({ method: "runs.start", params: expect.objectContaining({ collective: "broadcast", root: 2, algorithm: "binomial" }) })));
    await waitFor(() => expect(screen.getByTestId("run-header").textContent).toContain("root 2"));
    expect(within(screen.getByTestId("run-table")).getByRole("columnheader", { name: "root" })).toBeTruthy();
  });

  it("runs a barrier, which has no sizes, and shows its row", async () => {
    renderOver(<CollectivesPage />, { history: false });
    await screen.findByRole("checkbox", { name: "gpu-01" });
    fireEvent.change(screen.getByRole("combobox", { name: "Operation" }), { target: { value: "barrier" } });
    expect(screen.queryByRole("textbox", { name: /^To/ })).toBeNull();
    fireEvent.click(screen.getByRole("button", { name: "Run" }));
    await waitFor(() => expect(screen.getByTestId("run-header").dataset.state).toBe("succeeded"));
    expect(within(screen.getByTestId("run-table")).getAllByRole("row")).toHaveLength(2 + 1);
    expect(screen.getByText(/no curve over size/)).toBeTruthy();
  });

  it("stops a run on request", async () => {
    renderOver(<CollectivesPage />, { history: false, stepMs: 300 });
    await screen.findByRole("checkbox", { name: "gpu-01" });
    fireEvent.click(screen.getByRole("button", { name: "Run" }));
    fireEvent.click(await screen.findByRole("button", { name: "Stop" }));
    await waitFor(() => expect(screen.getByTestId("run-header").dataset.state).toBe("stopped"));
  });

  it("is loud about wrong values and names the rank that failed", async () => {
    const { container } = renderOver(<CollectivesPage />);
    await screen.findByTestId("run-history");
    expect(screen.queryByTestId("wrong-banner")).toBeNull();
    fireEvent.click(container.querySelector('[data-row-id="r-004"]')!);
    expect((await screen.findByTestId("wrong-banner")).textContent).toContain("34 wrong values");
    expect(container.querySelectorAll("tr[data-wrong]")).toHaveLength(1);
    fireEvent.click(container.querySelector('[data-row-id="r-003"]')!);
    expect((await screen.findByTestId("error-note")).textContent).toContain("Rank 2 on gpu-03");
    expect(screen.getByTestId("rank-error-2").textContent).toContain("A205");
  });

  it("does not start a run of one rank, and says why", async () => {
    renderOver(<CollectivesPage />, { history: false });
    await screen.findByRole("checkbox", { name: "gpu-01" });
    for (const name of ["gpu-02", "gpu-03", "gpu-04"]) fireEvent.click(screen.getByRole("checkbox", { name }));
    expect(screen.getByRole<HTMLButtonElement>("button", { name: "Run" }).disabled).toBe(true);
    expect(screen.getByText(/at least two ranks/)).toBeTruthy();
  });
});
