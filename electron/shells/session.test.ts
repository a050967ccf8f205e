import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { ConsoleError, HostMessage, MAX_MESSAGE_BYTES } from "../contract/index.js";
import { KeyedTopic } from "../streams.js";
import type { Dispatcher } from "../gate.js";
import { Session } from "./session.js";

interface World {
  host: Dispatcher;
  session: Session;
  sent: HostMessage[];
  closed: string[];
  dispatched: string[];
  backlog: { bytes: number };
}

function world(dispatch: Dispatcher["dispatch"] = async () => ({ fine: true })): World {
  const sent: HostMessage[] = [];
  const closed: string[] = [];
  const dispatched: string[] = [];
  const backlog = { bytes: 0 };
  const host: Dispatcher = {
    dispatch: (method, params, signal) => {
      dispatched.push(method);
      return dispatch(method, params, signal);
    },
    subscribe: (stream, listener) => {
      if (stream !== "nodes") throw ConsoleError.of("H102", { method: stream });
      listener({ kind: "snapshot", items: [] });
      return () => dispatched.push("left");
    },
  };
  const session = new Session(host, { send: (text) => sent.push(HostMessage.parse(JSON.parse(text))), backlogBytes: () => backlog.bytes, close: (why) => closed.push(why) });
  return { host, session, sent, closed, dispatched, backlog };
}
const errorCodes = (sent: HostMessage[]): string[] => sent.map((m) => (m.type === "error" ? `${String(m.id)}:${m.error.code}` : m.type));

describe("Session", () => {
  it.each([
    ["no JSON", "{"],
    ["no object", "7"],
    ["null", "null"],
    ["an array", "[]"],
    ["no type", '{"id":1}'],
    ["an unknown type", '{"type":"eval","id":1}'],
    ["an id that is no number", '{"type":"request","id":"1","method":"hello","params":{}}'],
    ["a negative id", '{"type":"request","id":-1,"method":"hello","params":{}}'],
    ["a fraction as id", '{"type":"request","id":1.5,"method":"hello","params":{}}'],
    ["an id past exact integers", '{"type":"request","id":9007199254740993,"method":"hello","params":{}}'],
    ["a method that is no text", '{"type":"request","id":1,"method":{},"params":{}}'],
    ["a method name without end", `{"type":"request","id":1,"method":"${"m".repeat(65)}","params":{}}`],
    ["an unknown member", '{"type":"request","id":1,"method":"hello","params":{},"admin":true}'],
    ["a subscription without stream", '{"type":"subscribe","id":1}'],
    ["a cancel without id", '{"type":"cancel"}'],
    ["too many bytes", `{"type":"request","id":1,"method":"hello","params":"${"x".repeat(MAX_MESSAGE_BYTES)}"}`],
    ["too deep", `{"type":"request","id":1,"method":"hello","params":${"[".repeat(100_000)}`],
  ])("answers %s with H101 and does nothing", async (_name, text) => {
    const { session, sent, dispatched } = world();
    session.receive(text);
    await Promise.resolve();
    expect(errorCodes(sent)).toEqual(["null:H101"]);
    expect(dispatched).toEqual([]);
    session.receive('{"type":"request","id":1,"method":"hello","params":{}}');
    await vi.waitFor(() => expect(sent.at(-1)).toEqual({ type: "result", id: 1, result: { fine: true } }));
  });

  it("hangs up on a page that sends nothing but nonsense", () => {
    const { session, sent, closed } = world();
    for (let i = 0; i < 100; i++) session.receive("x");
    expect(closed).toEqual(["too many malformed messages"]);
    expect(sent).toHaveLength(64);
  });

  it("refuses an id that is in use and leaves its owner alone", async () => {
    let finish: (value: unknown) => void = () => {};
    const { session, sent } = world(() => new Promise((done) => { finish = done; }));
    session.receive('{"type":"request","id":5,"method":"hello","params":{}}');
    session.receive('{"type":"request","id":5,"method":"hello","params":{}}');
    session.receive('{"type":"subscribe","id":5,"stream":"nodes"}');
    expect(errorCodes(sent)).toEqual(["null:H101", "null:H101"]);
    finish(1);
    await vi.waitFor(() => expect(sent.at(-1)).toEqual({ type: "result", id: 5, result: 1 }));
  });

  it("cancel aborts the work, answers H104 once, and drops what comes late", async () => {
    let signal: AbortSignal | undefined;
    let finish: (value: unknown) => void = () => {};
    const { session, sent } = world((_m, _p, s) => {
      signal = s;
      return new Promise((done) => { finish = done; });
    });
    session.receive('{"type":"request","id":1,"method":"hello","params":{}}');
    session.receive('{"type":"cancel","id":1}');
    session.receive('{"type":"cancel","id":1}');
    finish("late");
    await new Promise((done) => setImmediate(done));
    expect(signal?.aborted).toBe(true);
    expect(errorCodes(sent)).toEqual(["1:H104"]);
  });

  it("an error without a view becomes H105, and only its message crosses", async () => {
    const { session, sent } = world(async () => { throw new TypeError("boom"); });
    session.receive('{"type":"request","id":1,"method":"hello","params":{}}');
    await vi.waitFor(() => expect(errorCodes(sent)).toEqual(["1:H105"]));
    expect(JSON.stringify(sent)).not.toContain("session.test");
  });

  it("numbers events from 1 and ends a subscription on cancel and on close", () => {
    const { session, sent, dispatched } = world();
    session.receive('{"type":"subscribe","id":1,"stream":"nodes"}');
    session.receive('{"type":"subscribe","id":2,"stream":"nodes"}');
    session.receive('{"type":"subscribe","id":3,"stream":"secrets"}');
    expect(sent.slice(0, 2)).toEqual([1, 2].map((id) => ({ type: "event", id, seq: 1, data: { kind: "snapshot", items: [] } })));
    expect(errorCodes(sent.slice(2))).toEqual(["3:H102"]);
    session.receive('{"type":"cancel","id":1}');
    expect(dispatched).toEqual(["left"]);
    session.close();
    expect(dispatched).toEqual(["left", "left"]);
  });

  it("bounds requests and subscriptions in flight", () => {
    const { session, sent } = world(() => new Promise(() => {}));
    for (let id = 0; id < 129; id++) session.receive(`{"type":"request","id":${id},"method":"hello","params":{}}`);
    expect(errorCodes(sent)).toEqual(["128:H101"]);
    for (let id = 1000; id < 1065; id++) session.receive(`{"type":"subscribe","id":${id},"stream":"nodes"}`);
    expect(errorCodes(sent).at(-1)).toBe("1064:H101");
  });
});

describe("streams behind a session", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it("a burst becomes at most ten events a second, with the last state of each item", () => {
    const items = new Map([["a", { id: "a", n: 0 }], ["b", { id: "b", n: 0 }]]);
    const topic = new KeyedTopic({ list: () => [...items.values()], get: (id) => items.get(id) });
    const events: unknown[] = [];
    const leave = topic.subscribe((event) => events.push(event));
    expect(events).toEqual([{ kind: "snapshot", items: [{ id: "a", n: 0 }, { id: "b", n: 0 }] }]);
    for (let n = 1; n <= 1000; n++) {
      items.set("a", { id: "a", n });
      topic.changed("a");
      vi.advanceTimersByTime(1);
    }
    vi.advanceTimersByTime(200);
    expect(events.length).toBeLessThanOrEqual(12);
    expect(events.length).toBeGreaterThanOrEqual(10);
    expect(events.at(-1)).toEqual({ kind: "patch", upsert: [{ id: "a", n: 1000 }], remove: [] });
    items.delete("b");
    topic.changed("b");
    vi.advanceTimersByTime(200);
    expect(events.at(-1)).toEqual({ kind: "patch", upsert: [], remove: ["b"] });
    leave();
    topic.changed("a");
    vi.advanceTimersByTime(1000);
    expect(events.at(-1)).toEqual({ kind: "patch", upsert: [], remove: ["b"] });
  });

  it("waits for a slow page and then sends one merged event", () => {
    const topic = new KeyedTopic({ list: () => [] as string[], get: (id) => id });
    const events: unknown[] = [];
    let ready = true;
    topic.subscribe((event) => events.push(event), { ready: () => ready });
    ready = false;
    topic.changed("a");
    vi.advanceTimersByTime(1000);
    topic.changed("b");
    vi.advanceTimersByTime(1000);
    expect(events).toHaveLength(1);
    ready = true;
    vi.advanceTimersByTime(150);
    expect(events.slice(1)).toEqual([{ kind: "patch", upsert: ["a", "b"], remove: [] }]);
  });

  it("cuts a large snapshot so that no event passes the wire's limit", () => {
    const items = Array.from({ length: 30 }, (_, i) => ({ id: String(i), text: "x".repeat(100_000) }));
    const topic = new KeyedTopic({ list: () => items, get: () => undefined });
    const sizes: number[] = [];
    topic.subscribe((event) => sizes.push(JSON.stringify(event).length));
    expect(sizes.length).toBeGreaterThan(5);
    expect(Math.max(...sizes)).toBeLessThan(MAX_MESSAGE_BYTES);
  });
});
