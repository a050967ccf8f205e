/** Totals of one node at one moment, as its daemon counts them. Times in ms of the node's clocks; totals in bytes. */
export interface NodeTotals {
  /** The node's number in the cluster; null while it is no member. */
  member: number | null;
  monotonicMs: number;
  realtimeMs: number;
  intervalMs: number;
  lostOps: number;
  ranks: number;
  daemonRssKib: number;
  cpuPermille: number;
  memoryAvailableBytes: number;
  nics: NicTotals[];
  flows: FlowTotals[];
}
export interface NicTotals {
  name: string;
  kind: "netdev" | "rdma";
  port: number;
  state: "unknown" | "down" | "init" | "armed" | "active";
  speedMbps: number;
  txBytes: number;
  rxBytes: number;
  errors: number;
  drops: number;
}
export interface FlowTotals {
  commId: string;
  rank: number;
  peerRank: number;
  /** null when the daemon does not know where the peer is. */
  peerMember: number | null;
  transport: number;
  queueDepth: number;
  txBytes: number;
  rxBytes: number;
  errors: number;
}

export type WithRates<T> = T & { txBytesPerSecond: number; rxBytesPerSecond: number };
export interface NodeRates extends Omit<NodeTotals, "nics" | "flows"> {
  nics: WithRates<NicTotals>[];
  flows: WithRates<FlowTotals>[];
  /** When the totals were read, in the console's clock. */
  sampledAtMs: number;
}

interface Counter {
  txBytes: number;
  rxBytes: number;
}

/** Offsets remembered: at two samples a second, half a minute. */
const OFFSET_WINDOW = 60;

/**
 * Turns one node's totals into rates. A counter that went down (driver reloaded, process started anew) begins anew: its rate is
 * 0 once. A gap gives the mean over the gap. A monotonic clock that went back is a reboot: everything begins anew.
 */
export class RateMeter {
  #last: NodeTotals | null = null;
  #counters = new Map<string, Counter>();
  #offsets: number[] = [];

  /** @param receivedAtMs the console's clock when the frame came; null for totals that are no later than the last ones */
  feed(totals: NodeTotals, receivedAtMs: number): NodeRates | null {
    const last = this.#last;
    const elapsedMs = last ? totals.monotonicMs - last.monotonicMs : 0;
    if (last && elapsedMs === 0) return null;
    const fresh = !last || elapsedMs < 0;
    if (fresh) this.#offsets = [];
    const before = fresh ? new Map<string, Counter>() : this.#counters;
    this.#last = totals;
    this.#counters = new Map();
    const rated = <T extends Counter>(key: string, item: T): WithRates<T> => {
      const old = before.get(key);
      this.#counters.set(key, { txBytes: item.txBytes, rxBytes: item.rxBytes });
      const reset = !old || item.txBytes < old.txBytes || item.rxBytes < old.rxBytes;
      const perSecond = (now: number, then: number): number => ((now - then) * 1000) / elapsedMs;
      return { ...item, txBytesPerSecond: reset ? 0 : perSecond(item.txBytes, old.txBytes), rxBytesPerSecond: reset ? 0 : perSecond(item.rxBytes, old.rxBytes) };
    };
    return {
      ...totals,
      nics: totals.nics.map((nic) => rated(`nic ${nic.kind} ${nic.name} ${nic.port}`, nic)),
      flows: totals.flows.map((flow) => rated(`flow ${flow.commId} ${flow.rank} ${flow.peerRank} ${flow.transport}`, flow)),
      sampledAtMs: this.#inOurClock(totals.realtimeMs, receivedAtMs),
    };
  }

  /** The smallest recent difference between arrival and the node's own stamp is the clocks' offset: it holds the least delay. */
  #inOurClock(realtimeMs: number, receivedAtMs: number): number {
    this.#offsets.push(receivedAtMs - realtimeMs);
    if (this.#offsets.length > OFFSET_WINDOW) this.#offsets.shift();
    return Math.min(receivedAtMs, realtimeMs + Math.min(...this.#offsets));
  }
}
