import { encodeFrame, minFrameBytes } from './framing.js';

/** Where a port's frames go: true when the frame was taken, false when the port's queue is full. */
export type Deliver = (bytes: Buffer) => boolean;

/** What a link does to the frames that cross it. */
export interface LinkSettings {
  /** Share of frames that are lost, 0 to 100; each of the two links of a frame's way decides by itself. */
  dropPercent: number;
  /** Added to each frame's way over this link, in ms; the order of frames stays. */
  delayMs: number;
  /** No frame passes. */
  cut: boolean;
}

export interface PortCounters {
  /** Frames that came from the node. */
  rxFrames: number;
  rxBytes: number;
  /** Frames handed to the node. */
  txFrames: number;
  txBytes: number;
  /** Frames lost on this port's link by dropPercent. */
  lost: number;
  /** Frames stopped by a cut of this link or of the pair. */
  cut: number;
  /** Frames lost because the node did not read fast enough. */
  overrun: number;
}

interface Port {
  readonly deliver: Deliver;
  readonly link: LinkSettings;
  readonly counters: PortCounters;
}

/** The clock and the dice, so that a test can hold them. */
export interface Environment {
  random(): number;
  nowMs(): number;
  after(delayMs: number, action: () => void): void;
}

const realEnvironment: Environment = {
  random: Math.random,
  nowMs: () => performance.now(),
  after: (delayMs, action) => void setTimeout(action, delayMs),
};

/** What all slow links together hold, about 50 ms at 10 Gbps; frames beyond it are lost. */
const maxDelayedBytes = 64 * 1024 * 1024;

const whole: Readonly<LinkSettings> = { dropPercent: 0, delayMs: 0, cut: false };

/**
 * A learning Ethernet switch with faults. Ports are node indexes; a node that comes back takes its port again.
 * Settings belong to the node's link, not to the connection, and so survive a power cycle of the node.
 */
export class Switch {
  readonly #ports = new Map<number, Port>();
  readonly #links = new Map<number, LinkSettings>();
  readonly #cutPairs = new Set<string>();
  readonly #macs = new Map<string, number>();
  /** Frames under way over a slow link, in the order of their arrival time. */
  readonly #delayed: { due: number; port: number; bytes: Buffer }[] = [];
  #delayedBytes = 0;
  #timerDue = Infinity;

  constructor(private readonly env: Environment = realEnvironment) {}

  attach(port: number, deliver: Deliver): void {
    const counters = { rxFrames: 0, rxBytes: 0, txFrames: 0, txBytes: 0, lost: 0, cut: 0, overrun: 0 };
    this.#ports.set(port, { deliver, link: this.#link(port), counters });
  }

  /** Forgets a port and what was learned about it; does nothing when another connection has taken it over. */
  detach(port: number, deliver: Deliver): void {
    if (this.#ports.get(port)?.deliver !== deliver) return;
    this.#ports.delete(port);
    for (const [mac, at] of this.#macs) if (at === port) this.#macs.delete(mac);
  }

  setLink(port: number, change: Partial<LinkSettings>): void {
    Object.assign(this.#link(port), change);
  }

  setPairCut(a: number, b: number, cut: boolean): void {
    if (cut) this.#cutPairs.add(pairKey(a, b));
    else this.#cutPairs.delete(pairKey(a, b));
  }

  /** Makes a node's link, and its pairs, whole again; without a node all of them. */
  restore(port?: number): void {
    for (const [at, link] of this.#links) if (port === undefined || at === port) Object.assign(link, whole);
    for (const pair of this.#cutPairs) if (port === undefined || pair.split('-').includes(String(port))) this.#cutPairs.delete(pair);
  }

  /** Takes a frame from a node and sends it on. */
  receive(from: number, frame: Buffer): void {
    const source = this.#ports.get(from);
    if (source === undefined || frame.length < minFrameBytes) return;
    source.counters.rxFrames++;
    source.counters.rxBytes += frame.length;

    const destinationMac = frame.toString('latin1', 0, 6);
    const sourceMac = frame.toString('latin1', 6, 12);
    if (!isGroup(frame, 6)) this.#macs.set(sourceMac, from);

    const known = isGroup(frame, 0) ? undefined : this.#macs.get(destinationMac);
    if (known === from) return;
    if (!this.#crosses(source)) return;
    const bytes = encodeFrame(frame);
    if (known !== undefined) this.#forward(from, source, known, bytes);
    else for (const to of this.#ports.keys()) if (to !== from) this.#forward(from, source, to, bytes);
  }

  /** Settings and counters of every port that was ever attached or set, by node index. */
  status(): { port: number; attached: boolean; link: LinkSettings; counters?: PortCounters }[] {
    return [...this.#links].sort(([a], [b]) => a - b).map(([port, link]) => {
      const counters = this.#ports.get(port)?.counters;
      return { port, attached: counters !== undefined, link: { ...link }, ...(counters === undefined ? {} : { counters: { ...counters } }) };
    });
  }

  cutPairs(): [number, number][] {
    return [...this.#cutPairs].map((pair) => pair.split('-').map(Number) as [number, number]);
  }

  #link(port: number): LinkSettings {
    let link = this.#links.get(port);
    if (link === undefined) this.#links.set(port, (link = { ...whole }));
    return link;
  }

  /** Whether a frame gets over one port's link. */
  #crosses(port: Port): boolean {
    if (port.link.cut) {
      port.counters.cut++;
      return false;
    }
    if (port.link.dropPercent > 0 && this.env.random() * 100 < port.link.dropPercent) {
      port.counters.lost++;
      return false;
    }
    return true;
  }

  #forward(from: number, source: Port, to: number, bytes: Buffer): void {
    const target = this.#ports.get(to);
    if (target === undefined) return;
    if (this.#cutPairs.has(pairKey(from, to))) {
      target.counters.cut++;
      return;
    }
    if (!this.#crosses(target)) return;
    const delayMs = source.link.delayMs + target.link.delayMs;
    if (delayMs === 0) this.#deliver(to, bytes);
    else if (this.#delayedBytes + bytes.length > maxDelayedBytes) target.counters.overrun++;
    else this.#delay(to, bytes, delayMs);
  }

  #deliver(to: number, bytes: Buffer): void {
    const target = this.#ports.get(to);
    if (target === undefined) return;
    if (!target.deliver(bytes)) {
      target.counters.overrun++;
      return;
    }
    target.counters.txFrames++;
    target.counters.txBytes += bytes.length - 4;
  }

  #delay(port: number, bytes: Buffer, delayMs: number): void {
    const due = this.env.nowMs() + delayMs;
    // Almost always the last; a frame on a faster link goes in front of those that arrive later.
    let at = this.#delayed.length;
    while (at > 0 && (this.#delayed[at - 1] as { due: number }).due > due) at--;
    this.#delayed.splice(at, 0, { due, port, bytes });
    this.#delayedBytes += bytes.length;
    this.#arm();
  }

  /** Sees that a timer is set for the first delayed frame. */
  #arm(): void {
    const due = this.#delayed[0]?.due;
    if (due === undefined || this.#timerDue <= due) return;
    this.#timerDue = due;
    this.env.after(Math.max(0, due - this.env.nowMs()), () => {
      if (this.#timerDue !== due) return; // an earlier frame came in between and has set its own timer
      this.#timerDue = Infinity;
      const now = this.env.nowMs();
      let ready = 0;
      while (ready < this.#delayed.length && (this.#delayed[ready] as { due: number }).due <= now) ready++;
      for (const { port, bytes } of this.#delayed.splice(0, ready)) {
        this.#delayedBytes -= bytes.length;
        this.#deliver(port, bytes);
      }
      this.#arm();
    });
  }
}

/** Whether the address at `offset` is a broadcast or multicast one (IEEE 802: the first byte's lowest bit). */
function isGroup(frame: Buffer, offset: number): boolean {
  return ((frame[offset] ?? 0) & 1) === 1;
}

function pairKey(a: number, b: number): string {
  return a < b ? `${a}-${b}` : `${b}-${a}`;
}
