export { permilleText as percent } from "../settings/words.js";
import type { GpuProcessView } from "../../electron/contract/index.js";
import { oneLine } from "../shared/printable.js";
import type { PoolRow } from "./store.js";

/** "rank 3/8 · train-7b · pid 4242": the field's words, the same in every language. */
export const processText = (process: GpuProcessView): string => [`rank ${process.rank}/${process.worldSize}`, ...(process.job === null ? [] : [oneLine(process.job, 64)]), `pid ${process.pid}`].join(" · ");

export function gpuText(row: PoolRow): string {
  const index = row.gpu?.index ?? row.process?.gpuIndex ?? null;
  const name = row.gpu?.name ?? row.process?.gpuUuid ?? null;
  return [index === null ? "GPU ?" : `GPU ${index}`, ...(name === null ? [] : [oneLine(name, 60)])].join(" · ");
}
