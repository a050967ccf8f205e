import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { WsCarrier } from "./ws-carrier.js";

class FakeSocket extends EventTarget {
  static made: FakeSocket[] = [];
  readyState = 0;
  sent: string[] = [];
  constructor(readonly url: string) { super(); FakeSocket.made.push(this); }
  send(text: string): void { this.sent.push(text); }
  close(): void { this.drop(); }
  open(): void { this.readyState = 1; this.dispatchEvent(new Event("open")); }
  drop(): void { this.readyState = 3; this.dispatchEvent(new Event("close")); }
  say(data: string): void { this.dispatchEvent(Object.assign(new Event("message"), { data })); }
}
const make = () => new WsCarrier({ url: "ws://127.0.0.1:1/ws", minDelayMs: 100, maxDelayMs: 800, random: () => 1, makeSocket: (url) => new FakeSocket(url) as unknown as WebSocket });

describe("WsCarrier", () => {
  beforeEach(() => { FakeSocket.made = []; vi.useFakeTimers(); });
  afterEach(() => vi.useRealTimers());

  it("dials again with doubling pauses up to the longest, and starts over after it was open", () => {
    const carrier = make();
    const waits: number[] = [];
    for (let failure = 0; failure < 5; failure++) {
      const count = FakeSocket.made.length;
      FakeSocket.made.at(-1)!.drop();
      let waited = 0;
      while (FakeSocket.made.length === count) { vi.advanceTimersByTime(50); waited += 50; }
      waits.push(waited);
    }
    expect(waits).toEqual([100, 200, 400, 800, 800]);
    FakeSocket.made.at(-1)!.open();
    FakeSocket.made.at(-1)!.drop();
    const count = FakeSocket.made.length;
    vi.advanceTimersByTime(100);
    expect(FakeSocket.made).toHaveLength(count + 1);
    carrier.close();
  });

  it("tells each listener the present state and each change", () => {
    const carrier = make();
    const states: string[] = [];
    carrier.onState((state) => states.push(state));
    FakeSocket.made[0]!.open();
    FakeSocket.made[0]!.drop();
    vi.advanceTimersByTime(100);
    expect(states).toEqual(["connecting", "open", "closed", "connecting"]);
    carrier.close();
  });

  it("dials at once when asked, and only then", () => {
    const carrier = make();
    carrier.reconnectNow();
    expect(FakeSocket.made).toHaveLength(1);
    FakeSocket.made[0]!.drop();
    carrier.reconnectNow();
    expect(FakeSocket.made).toHaveLength(2);
    vi.advanceTimersByTime(5000);
    expect(FakeSocket.made).toHaveLength(2);
    carrier.close();
  });

  it("never dials again after close, and sends nothing while not open", () => {
    const carrier = make();
    carrier.send({ type: "cancel", id: 1 });
    expect(FakeSocket.made[0]!.sent).toEqual([]);
    FakeSocket.made[0]!.open();
    carrier.send({ type: "cancel", id: 1 });
    expect(FakeSocket.made[0]!.sent).toEqual(['{"type":"cancel","id":1}']);
    carrier.close();
    vi.advanceTimersByTime(60_000);
    expect(FakeSocket.made).toHaveLength(1);
  });

  it("drops text that is no JSON or no host message, and delivers the rest", () => {
    const quiet = vi.spyOn(console, "error").mockImplementation(() => undefined);
    const carrier = make();
    const messages: unknown[] = [];
    carrier.onMessage((message) => messages.push(message));
    const socket = FakeSocket.made[0]!;
    socket.open();
    for (const text of ["", "{", "[]", '{"type":"event"}', '{"type":"result","id":-1}', '{"type":"result","id":1,"result":7}']) socket.say(text);
    expect(messages).toEqual([{ type: "result", id: 1, result: 7 }]);
    quiet.mockRestore();
    carrier.close();
  });
});
