import { counterWatchers } from "./counters.js";
import { gpuWatchers } from "./gpu.js";
import { hostWatchers } from "./host.js";
import { kernelWatchers } from "./kernel.js";
import { aerWatcher } from "./aer.js";
import { pciWatchers } from "./pci.js";
import { portWatchers } from "./ports.js";
import { rdmaWatchers } from "./rdma.js";
import { jobWatchers } from "./job.js";
import type { Watcher } from "./watcher.js";

export type { Watcher } from "./watcher.js";

/** In the order in which they judge at the end. */
export const WATCHERS: readonly Watcher[] = [...kernelWatchers, aerWatcher, ...pciWatchers, ...portWatchers, ...counterWatchers, ...rdmaWatchers, ...gpuWatchers, ...hostWatchers, ...jobWatchers];
