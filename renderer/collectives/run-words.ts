import type { TFunction } from "i18next";
import type { RunView } from "../../electron/contract/index.js";
import { sizeTick } from "../shared/format.js";

/** A run in few words: "AllReduce · RDMA · 3 × 1 · 21:14:03". */
export function runTitle(run: RunView, t: TFunction): string {
  const at = new Date(run.startedAtMs);
  const time = [at.getHours(), at.getMinutes(), at.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":");
  return `${t(`ops.${run.spec.collective}`)} · ${transportWord(run.spec.transport, t)} · ${run.spec.nodeIds.length} × ${run.spec.ranksPerNode} · ${time}`;
}

export const transportWord = (transport: string, t: TFunction): string => (transport === "auto" ? t("run.auto") : transport.toUpperCase());
export const sizeRange = (run: RunView): string => `${sizeTick(run.spec.minBytes)} – ${sizeTick(run.spec.maxBytes)}`;
export const isRunning = (run: RunView): boolean => run.state === "starting" || run.state === "running";
