import type { NodePhase } from "../../../electron/contract/index.js";
import type { Age } from "../../shared/format.js";
import type { Lane, LaneRate } from "../lanes.js";

export interface SceneNode {
  id: string;
  name: string;
  phase: NodePhase;
  /** Older than 3 s: drawn grey, never as good. */
  stale: boolean;
  /** Null while fresh. */
  age: Age | null;
  ports: ReadonlyArray<{ name: string; label: string; up: boolean }>;
  txBytesPerSecond: number;
  rxBytesPerSecond: number;
  /** Breaks a rule: drawn so that it is found at once. With a port's name, that port does. */
  marked: { port: string | null } | null;
}
export interface SceneLane extends Lane {
  rate: LaneRate;
  stale: boolean;
  marked: boolean;
}
export interface SceneModel {
  nodes: readonly SceneNode[];
  lanes: readonly SceneLane[];
}
export type Selection = { kind: "node" | "lane"; id: string } | null;

/** Colours and words come from outside: the scene knows neither theme nor language. */
export interface SceneStyle {
  font: string;
  mono: string;
  text: string;
  dim: string;
  line: string;
  panel: string;
  raised: string;
  focus: string;
  ok: string;
  warn: string;
  bad: string;
  info: string;
  idle: string;
  transport: Record<Lane["transport"], string>;
  phaseWord(phase: NodePhase): string;
  ago(age: Age): string;
}
