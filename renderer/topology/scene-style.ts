import type { TFunction } from "i18next";
import { ago } from "../shared/small.js";
import type { SceneStyle } from "./scene/model.js";

/** The scene's colours from the page's own variables, so that light and dark are written once. */
export function sceneStyle(root: HTMLElement, dark: boolean, t: TFunction): SceneStyle {
  const computed = getComputedStyle(root);
  const read = (name: string) => computed.getPropertyValue(name).trim();
  return {
    font: read("--mantine-font-family") || "sans-serif", mono: read("--mantine-font-family-monospace") || "monospace",
    text: dark ? "#dde1e6" : "#16191d", dim: dark ? "#a3abb3" : "#50585f", line: read("--b-strong"), panel: read("--s-panel"), raised: read("--s-raised"), focus: read("--focus"),
    ok: read("--c-ok"), warn: read("--c-warn"), bad: read("--c-bad"), info: read("--c-info"), idle: read("--c-idle"),
    // Told apart by lightness too, for eyes that do not tell these hues apart.
    transport: dark ? { tcp: "#5b93d6", rdma: "#e0a13c", dma: "#8f7ce0", gpu_peer: "#62b562" } : { tcp: "#2f6fb7", rdma: "#c77700", dma: "#6741d9", gpu_peer: "#2b8a3e" },
    phaseWord: (phase) => t(`phases.${phase}`),
    ago: (age) => ago(age, t),
  };
}
