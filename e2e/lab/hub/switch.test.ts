import { beforeEach, describe, expect, it } from 'vitest';
import { Switch, type Environment } from './switch.js';

const mac = (n: number): Buffer => Buffer.from([0x52, 0x54, 0, 0x77, 0, n]);
const broadcast = Buffer.alloc(6, 0xff);
const ether = (to: Buffer, from: Buffer, payload = 'x'): Buffer => Buffer.concat([to, from, Buffer.from([0x08, 0x00]), Buffer.from(payload)]);

/** A clock that stands until it is moved, and dice that fall as told. */
class Bench implements Environment {
  now = 0;
  readonly dice: number[] = [];
  readonly timers: { at: number; action: () => void }[] = [];
  random(): number {
    return this.dice.shift() ?? 0.999;
  }
  nowMs(): number {
    return this.now;
  }
  after(delayMs: number, action: () => void): void {
    this.timers.push({ at: this.now + delayMs, action });
  }
  advance(toMs: number): void {
    for (;;) {
      this.timers.sort((a, b) => a.at - b.at);
      const next = this.timers[0];
      if (next === undefined || next.at > toMs) break;
      this.timers.shift();
      this.now = next.at;
      next.action();
    }
    this.now = toMs;
  }
}

describe('Switch', () => {
  let bench: Bench;
  let hub: Switch;
  let inbox: Map<number, string[]>;
  let full: Set<number>;
  const attach = (port: number): ((bytes: Buffer) => boolean) => {
    const deliver = (bytes: Buffer): boolean => {
      if (full.has(port)) return false;
      expect(bytes.readUInt32BE(0)).toBe(bytes.length - 4);
      inbox.get(port)?.push(bytes.toString('latin1', 18));
      return true;
    };
    inbox.set(port, []);
    hub.attach(port, deliver);
    return deliver;
  };
  const counters = (port: number) => hub.status().find((status) => status.port === port)?.counters;

  beforeEach(() => {
    bench = new Bench();
    hub = new Switch(bench);
    inbox = new Map();
    full = new Set();
    [1, 2, 3].forEach(attach);
  });
  const teach = (): void => {
    [1, 2, 3].forEach((port) => hub.receive(port, ether(broadcast, mac(port), 'hello')));
    inbox.forEach((got) => got.splice(0));
  };

  it('floods what goes to all, or to an address that it has not learned, but never back', () => {
    hub.receive(1, ether(broadcast, mac(1), 'all'));
    hub.receive(1, ether(mac(2), mac(1), 'unknown'));
    expect(inbox.get(2)).toEqual(['all', 'unknown']);
    expect(inbox.get(3)).toEqual(['all', 'unknown']);
    expect(inbox.get(1)).toEqual([]);
  });

  it('sends to the one port of a learned address', () => {
    teach();
    hub.receive(1, ether(mac(2), mac(1), 'two'));
    expect(inbox.get(2)).toEqual(['two']);
    expect(inbox.get(3)).toEqual([]);
  });

  it('learns anew when an address moves, and not from a group address', () => {
    teach();
    hub.receive(3, ether(mac(1), mac(2), 'moved'));
    hub.receive(1, ether(mac(2), mac(1), 'after'));
    expect(inbox.get(3)).toEqual(['after']);
    hub.receive(3, ether(mac(1), broadcast, 'odd'));
    hub.receive(1, ether(broadcast, mac(1), 'flooded'));
    expect(inbox.get(2)).toEqual(['flooded']);
  });

  it('drops a frame for its own sender\'s port and one that is too short', () => {
    teach();
    hub.receive(1, ether(mac(1), mac(1), 'self'));
    hub.receive(1, Buffer.alloc(13));
    expect([...inbox.values()].flat()).toEqual([]);
  });

  it('loses the share that each link says', () => {
    teach();
    hub.setLink(2, { dropPercent: 5 });
    bench.dice.push(0.0499, 0.05, 0.9);
    for (const payload of ['a', 'b', 'c']) hub.receive(1, ether(mac(2), mac(1), payload));
    expect(inbox.get(2)).toEqual(['b', 'c']);
    expect(counters(2)?.lost).toBe(1);
    bench.dice.push(0.01);
    hub.receive(2, ether(mac(1), mac(2), 'lost on its way out'));
    expect(inbox.get(1)).toEqual([]);
    expect(counters(2)?.lost).toBe(2);
  });

  it('loses about 5 % with real dice', () => {
    const real = new Switch();
    let got = 0;
    real.attach(1, () => true);
    real.attach(2, () => ++got > 0);
    real.setLink(1, { dropPercent: 5 });
    for (let i = 0; i < 20_000; i++) real.receive(1, ether(broadcast, mac(1)));
    // 5 standard deviations of the binomial distribution are 154.
    expect(Math.abs(got - 19_000)).toBeLessThan(154);
  });

  it('cuts one link in both directions and leaves the others', () => {
    teach();
    hub.setLink(2, { cut: true });
    hub.receive(1, ether(broadcast, mac(1), 'a'));
    hub.receive(2, ether(broadcast, mac(2), 'b'));
    expect(inbox.get(2)).toEqual([]);
    expect(inbox.get(3)).toEqual(['a']);
    expect(inbox.get(1)).toEqual([]);
    hub.setLink(2, { cut: false });
    hub.receive(1, ether(mac(2), mac(1), 'again'));
    expect(inbox.get(2)).toEqual(['again']);
  });

  it('cuts between a pair only, whichever is named first', () => {
    teach();
    hub.setPairCut(2, 1, true);
    hub.receive(1, ether(broadcast, mac(1), 'a'));
    hub.receive(2, ether(broadcast, mac(2), 'b'));
    expect(inbox.get(3)).toEqual(['a', 'b']);
    expect(inbox.get(1)).toEqual([]);
    expect(inbox.get(2)).toEqual([]);
    expect(hub.cutPairs()).toEqual([[1, 2]]);
    hub.setPairCut(1, 2, false);
    hub.receive(1, ether(mac(2), mac(1), 'again'));
    expect(inbox.get(2)).toEqual(['again']);
  });

  it('delays by the sum of both links and keeps the order', () => {
    teach();
    hub.setLink(1, { delayMs: 10 });
    hub.setLink(2, { delayMs: 40 });
    hub.receive(1, ether(mac(2), mac(1), 'first'));
    bench.advance(5);
    hub.receive(1, ether(mac(2), mac(1), 'second'));
    hub.receive(1, ether(mac(3), mac(1), 'faster'));
    bench.advance(49.9);
    expect(inbox.get(2)).toEqual([]);
    expect(inbox.get(3)).toEqual(['faster']);
    bench.advance(50);
    expect(inbox.get(2)).toEqual(['first']);
    bench.advance(55);
    expect(inbox.get(2)).toEqual(['first', 'second']);
    expect(bench.timers).toHaveLength(0);
  });

  it('keeps one live timer however many frames overtake', () => {
    teach();
    hub.setLink(3, { delayMs: 1000 });
    hub.receive(1, ether(mac(3), mac(1), 'slow'));
    hub.setLink(2, { delayMs: 1 });
    for (let i = 0; i < 50; i++) {
      hub.receive(1, ether(mac(2), mac(1), `fast ${i}`));
      bench.advance(bench.now + 2);
    }
    expect(inbox.get(2)).toHaveLength(50);
    bench.advance(2000);
    expect(inbox.get(3)).toEqual(['slow']);
    expect(bench.timers).toHaveLength(0);
  });

  it('bounds what slow links hold', () => {
    teach();
    hub.setLink(2, { delayMs: 100 });
    const big = ether(mac(2), mac(1), 'x'.repeat(65_000));
    for (let i = 0; i < 1200; i++) hub.receive(1, big);
    bench.advance(100);
    const got = inbox.get(2)?.length ?? 0;
    expect(got * 65_000).toBeLessThanOrEqual(64 * 1024 * 1024);
    expect(got + (counters(2)?.overrun ?? 0)).toBe(1200);
    hub.receive(1, big);
    bench.advance(200);
    expect(inbox.get(2)).toHaveLength(got + 1);
  });

  it('counts what a node did not read fast enough as overrun', () => {
    teach();
    full.add(2);
    hub.receive(1, ether(mac(2), mac(1), 'a'));
    expect(counters(2)?.overrun).toBe(1);
    expect(counters(2)?.txFrames).toBe(2);
  });

  it('keeps a link\'s settings over a power cycle, and ignores the end of a replaced connection', () => {
    teach();
    hub.setLink(2, { cut: true });
    const second = attach(2);
    hub.detach(2, () => true);
    expect(hub.status().find(({ port }) => port === 2)?.attached).toBe(true);
    hub.receive(1, ether(mac(2), mac(1), 'still cut'));
    expect(inbox.get(2)).toEqual([]);
    hub.detach(2, second);
    expect(hub.status().find(({ port }) => port === 2)).toMatchObject({ attached: false, link: { cut: true } });
  });

  it('restores one node\'s link and pairs, or all', () => {
    hub.setLink(1, { cut: true });
    hub.setLink(2, { dropPercent: 50, delayMs: 5 });
    hub.setPairCut(1, 3, true);
    hub.restore(1);
    expect(hub.cutPairs()).toEqual([]);
    expect(hub.status()[0]?.link).toEqual({ dropPercent: 0, delayMs: 0, cut: false });
    expect(hub.status()[1]?.link).toEqual({ dropPercent: 50, delayMs: 5, cut: false });
    hub.restore();
    expect(hub.status()[1]?.link).toEqual({ dropPercent: 0, delayMs: 0, cut: false });
  });

  it('does not take node 11 for node 1 when it restores pairs', () => {
    hub.setPairCut(11, 12, true);
    hub.restore(1);
    expect(hub.cutPairs()).toEqual([[11, 12]]);
  });
});
