import { fireEvent, screen, waitFor } from "@testing-library/react";
import { beforeEach, describe, expect, it } from "vitest";
import { renderOver } from "../dev/render.js";
import { matches } from "./fuzzy.js";
import { hrefOf, parseRoute } from "./router.js";
import { Shell } from "./Shell.js";

describe("routes", () => {
  it("come back as they went, and whatever is unknown leads to Nodes", () => {
    expect(parseRoute(hrefOf("diagnose", { nodes: "a,b" })).query.get("nodes")).toBe("a,b");
    for (const hash of ["", "#", "#/", "#/none", "#token=x", "#/nodes/../x"]) expect(parseRoute(hash).page).toBe("nodes");
    expect(parseRoute("#/topology").page).toBe("topology");
  });
});

describe("the palette's search", () => {
  it("takes words in any order and letters in theirs", () => {
    expect(matches("up node", "Bring up 3 nodes")).toBe(true);
    expect(matches("gpu12", "gpu-12 10.0.2.12")).toBe(true);
    expect(matches("gpu12", "gpu-1 10.0.0.2")).toBe(false);
    expect(matches("zz", "gpu-12")).toBe(false);
    expect(matches("", "anything")).toBe(true);
  });
});

describe("the shell", () => {
  beforeEach(() => { window.location.hash = "#/nodes"; });

  it("goes to pages with g and a letter, but not while somebody types", async () => {
    renderOver(<Shell />);
    await screen.findByText("gpu-01");
    const press = (key: string, target: Element | Window = window) => fireEvent.keyDown(target, { key });
    press("g");
    press("t");
    await waitFor(() => expect(window.location.hash).toBe("#/topology"));
    press("g");
    press("n");
    await waitFor(() => expect(window.location.hash).toBe("#/nodes"));
    const filter = await screen.findByRole("textbox", { name: "Filter nodes" });
    press("g", filter);
    press("d", filter);
    expect(window.location.hash).toBe("#/nodes");
  });

  it("opens the palette with Ctrl+K, finds a node and opens it", async () => {
    const { ui } = renderOver(<Shell />);
    await screen.findByText("gpu-01");
    fireEvent.keyDown(window, { key: "k", ctrlKey: true });
    const box = await screen.findByRole("combobox", { name: "Command palette" });
    fireEvent.change(box, { target: { value: "gpu-03" } });
    fireEvent.keyDown(box, { key: "Enter" });
    expect(ui.getState().nodeDetail).toBe("n3");
    expect(ui.getState().palette).toBe(false);
  });

  it("says when the host is gone, and stops saying so when it is back", async () => {
    const { host } = renderOver(<Shell />);
    await screen.findByText("gpu-01");
    host.setState("closed");
    expect((await screen.findByTestId("connection-banner")).textContent).toContain("out of reach");
    host.setState("open");
    await waitFor(() => expect(screen.queryByTestId("connection-banner")).toBeNull());
  });

  it("changes the language at once", async () => {
    renderOver(<Shell />, { language: "zh-CN" });
    expect(await screen.findByRole("heading", { level: 1, name: "节点" })).toBeTruthy();
    expect(document.documentElement.lang).toBe("zh-CN");
  });
});
