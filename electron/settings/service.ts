import { hostname, userInfo } from "node:os";
import { SettingName, toErrorView, type NodeSettingsView, type SettingChanges, type SettingChangeView, type SettingValue, type TopologyView } from "../contract/index.js";
import type { NodeDirectory } from "../link/directory.js";
import type { AgentResult } from "../link/schemas.js";
import { adviseNode } from "./advice.js";
import type { SettingsLog } from "./log.js";

const CALL_TIMEOUT_MS = 10_000;

export interface NodeSettingsOptions {
  nodes: NodeDirectory;
  topology: () => TopologyView;
  log: SettingsLog;
  now?: () => number;
  /** Told the nodes whose daemons took a change. */
  onChanged?: (nodeIds: readonly string[]) => void;
}

/** The live settings of the nodes. One node that cannot be asked or changed holds up no other. */
export class NodeSettings {
  constructor(private readonly o: NodeSettingsOptions) {}

  /** Of every node that is up. */
  async get(signal?: AbortSignal): Promise<NodeSettingsView[]> {
    const up = this.o.nodes.list().filter((node) => node.phase === "up" || node.phase === "degraded").map((node) => node.id);
    return await Promise.all(up.map((nodeId) => this.#one(nodeId, async () => valuesOf(await this.#call(nodeId, (agent, options) => agent.call("settings.get", {}, options), signal)))));
  }

  /**
   * Changes the given settings on each of the nodes: a node takes all of them or none, and says which; what changed is logged.
   * @throws ConsoleError H301 for a node that there is not; everything else is in the answer
   */
  async set(nodeIds: readonly string[], changes: SettingChanges, signal?: AbortSignal): Promise<NodeSettingsView[]> {
    const logged: SettingChangeView[] = [];
    const views = await Promise.all(nodeIds.map((nodeId) => this.#one(nodeId, async () => {
      const before = valuesOf(await this.#call(nodeId, (agent, options) => agent.call("settings.get", {}, options), signal));
      const after = valuesOf(await this.#call(nodeId, (agent, options) => agent.call("settings.set", changes as never, options), signal));
      for (const setting of SettingName.options) {
        if (before[setting] === after[setting]) continue;
        logged.push({ atMs: (this.o.now ?? Date.now)(), nodeId, nodeName: this.o.nodes.get(nodeId)?.name ?? nodeId, setting, from: before[setting], to: after[setting], by: `${userInfo().username}@${hostname()}` });
      }
      return after;
    })));
    if (logged.length > 0) this.o.log.add(logged);
    this.o.onChanged?.(views.filter((view) => view.error === null).map((view) => view.nodeId));
    return views;
  }

  history(limit: number): SettingChangeView[] {
    return this.o.log.list(limit);
  }

  async #one(nodeId: string, work: () => Promise<Record<SettingName, SettingValue>>): Promise<NodeSettingsView> {
    const advice = adviseNode(this.o.nodes.get(nodeId)?.facts ?? null, this.#oneWayUs(nodeId));
    try {
      return { nodeId, values: await work(), advice, error: null };
    } catch (error) {
      const view = toErrorView(error);
      if (view.code === "H301" || view.code === "H104" || view.code === "H105") throw error;
      return { nodeId, values: null, advice, error: view };
    }
  }

  async #call<T>(nodeId: string, ask: (agent: Awaited<ReturnType<NodeDirectory["agent"]>>, options: { timeoutMs: number; signal?: AbortSignal }) => Promise<T>, signal?: AbortSignal): Promise<T> {
    return await ask(await this.o.nodes.agent(nodeId, signal), { timeoutMs: CALL_TIMEOUT_MS, ...(signal ? { signal } : {}) });
  }

  /** Half of the best measured round trip to another node. */
  #oneWayUs(nodeId: string): number | null {
    const trips = this.o.topology().links.filter((link) => link.from === nodeId && link.to !== nodeId && link.state === "up").flatMap((link) => (link.rttUs === null ? [] : [link.rttUs]));
    return trips.length === 0 ? null : Math.min(...trips) / 2;
  }
}

/** What a daemon does not know (it may be older) is not set. */
function valuesOf(answer: AgentResult<"settings.get">): Record<SettingName, SettingValue> {
  return Object.fromEntries(SettingName.options.map((name) => [name, answer[name] ?? null])) as Record<SettingName, SettingValue>;
}
