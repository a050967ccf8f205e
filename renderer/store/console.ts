import { createContext, createElement, useContext, useEffect, useState, useSyncExternalStore, type ReactNode } from "react";
import { createStore, type StoreApi } from "zustand/vanilla";
import { useStore } from "zustand";
import type { AlertView, GuideRunView, MendRunView, NodeView, OperationView, PairTestView, Result, RunView, TopologyView } from "../../electron/contract/index.js";
import type { Client, ConnectionState } from "../client/client.js";
import { toShownError, type ShownError } from "../client/page-error.js";
import { HostClock } from "./clock.js";
import { keepResult, type ShownDiagnosis } from "./diagnoses.js";
import { createKeyedStore, type KeyedStore } from "./keyed.js";
import { TelemetryBuffer } from "./telemetry.js";

export interface HostState {
  connection: ConnectionState;
  /** When the connection was lost, in ms of this machine; null while it is open. */
  lostAtMs: number | null;
  hello: Result<"hello"> | null;
  error: ShownError | null;
}

/** Everything the page knows of the host, made once for each client; tests make their own. */
export interface Console {
  client: Client;
  host: StoreApi<HostState>;
  nodes: KeyedStore<NodeView>;
  operations: KeyedStore<OperationView>;
  runs: KeyedStore<RunView>;
  diagnoses: KeyedStore<ShownDiagnosis>;
  mends: KeyedStore<MendRunView>;
  guides: KeyedStore<GuideRunView>;
  pairs: KeyedStore<PairTestView>;
  alerts: KeyedStore<AlertView>;
  topology: StoreApi<TopologyView & { loaded: boolean }>;
  telemetry: TelemetryBuffer;
  clock: HostClock;
  /** Dials at once; undefined where the carrier has nothing to dial. */
  reconnectNow: (() => void) | undefined;
  dispose(): void;
}

export function createConsole(client: Client, reconnectNow?: () => void): Console {
  const host = createStore<HostState>()(() => ({ connection: client.state, lostAtMs: null, hello: null, error: null }));
  const nodes = createKeyedStore<NodeView>((node) => node.id);
  const operations = createKeyedStore<OperationView>((operation) => operation.id);
  const runs = createKeyedStore<RunView>((run) => run.id);
  const diagnoses = createKeyedStore<ShownDiagnosis>((diagnosis) => diagnosis.nodeId, keepResult);
  const mends = createKeyedStore<MendRunView>((run) => run.id);
  const guides = createKeyedStore<GuideRunView>((run) => run.id);
  const pairs = createKeyedStore<PairTestView>((test) => test.id);
  const alerts = createKeyedStore<AlertView>((alert) => alert.id);
  const topology = createStore<TopologyView & { loaded: boolean }>()(() => ({ epoch: 0, links: [], loaded: false }));
  const telemetry = new TelemetryBuffer();
  const clock = new HostClock();
  const greet = () => {
    client.request("hello", {}).then(
      (hello) => host.setState({ hello, error: null }),
      (thrown: unknown) => host.setState({ error: toShownError(thrown) }),
    );
  };
  const stops = [
    client.onState((connection) => {
      host.setState((before) => ({ connection, lostAtMs: connection === "open" ? null : (before.lostAtMs ?? Date.now()) }));
      if (connection === "open") greet();
    }),
    client.subscribe("nodes", nodes.apply, nodes.fail),
    client.subscribe("operations", operations.apply, operations.fail),
    client.subscribe("runs", runs.apply, runs.fail),
    client.subscribe("diagnoses", diagnoses.apply, diagnoses.fail),
    client.subscribe("mends", mends.apply, mends.fail),
    client.subscribe("guides", guides.apply, guides.fail),
    client.subscribe("pairs", pairs.apply, pairs.fail),
    client.subscribe("alerts", alerts.apply, alerts.fail),
    client.subscribe("topology", (event) => topology.setState({ ...event, loaded: true })),
    client.subscribe("telemetry", (tick) => {
      clock.observe(tick.atMs);
      telemetry.apply(tick);
    }),
  ];
  if (client.state === "open") greet();
  return {
    client, host, nodes, operations, runs, diagnoses, mends, guides, pairs, alerts, topology, telemetry, clock, reconnectNow,
    dispose: () => {
      for (const stop of stops) stop();
    },
  };
}

const ConsoleContext = createContext<Console | null>(null);

export const ConsoleProvider = ({ console, children }: { console: Console; children: ReactNode }) =>
  createElement(ConsoleContext.Provider, { value: console }, children);

export function useConsole(): Console {
  const console = useContext(ConsoleContext);
  if (!console) throw new Error("useConsole outside of ConsoleProvider");
  return console;
}

export const useHost = <T>(selector: (state: HostState) => T): T => useStore(useConsole().host, selector);

const secondListeners = new Set<() => void>();
let second = 0;
let secondTimer: ReturnType<typeof setInterval> | null = null;
const subscribeSecond = (listener: () => void) => {
  secondListeners.add(listener);
  secondTimer ??= setInterval(() => {
    second++;
    for (const each of [...secondListeners]) each();
  }, 1000);
  return () => {
    secondListeners.delete(listener);
    if (secondListeners.size === 0 && secondTimer !== null) {
      clearInterval(secondTimer);
      secondTimer = null;
    }
  };
};

/** The console's time, renewed each second by one timer for the whole page. */
export function useNow(): number {
  const { clock } = useConsole();
  useSyncExternalStore(subscribeSecond, () => second);
  return clock.now();
}

/** The telemetry's version, at most `hz` times a second; the value itself is read from the buffer. */
export function useTelemetryVersion(hz = 1): number {
  const { telemetry } = useConsole();
  const [version, setVersion] = useState(telemetry.version);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | null = null;
    const stop = telemetry.subscribe(() => {
      timer ??= setTimeout(() => {
        timer = null;
        setVersion(telemetry.version);
      }, 1000 / hz);
    });
    setVersion(telemetry.version);
    return () => {
      stop();
      if (timer !== null) clearTimeout(timer);
    };
  }, [telemetry, hz]);
  return version;
}
