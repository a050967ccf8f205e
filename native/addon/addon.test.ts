import { Worker } from 'node:worker_threads';
import { describe, expect, it } from 'vitest';
import { decodeTelemetryFrame, expectedTimeUs, fitAlphaBeta, runtimeVersion, type TelemetryFrameError } from './index.js';

const headerBytes = 80;
const nicBytes = 72;
const flowBytes = 64;
const opBytes = 64;

/** A frame with one NIC, one flow and one operation, written field by field from telemetry.h. */
function frame(change: (view: DataView) => void = () => undefined): Uint8Array {
  const bytes = new Uint8Array(headerBytes + nicBytes + flowBytes + opBytes);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, 0x31464353, true);
  view.setUint32(4, bytes.length, true);
  view.setUint16(8, 1, true);
  view.setUint16(10, 2, true);
  view.setUint32(12, 500, true);
  view.setBigUint64(16, 7n, true);
  view.setBigUint64(24, 123n, true);
  view.setBigUint64(32, 1_800_000_000_000_000_001n, true);
  view.setUint32(48, 1, true);
  view.setUint32(52, 1, true);
  view.setUint32(56, 1, true);
  const nic = headerBytes;
  bytes.set(new TextEncoder().encode('rxe0\u0000\u0001junk'), nic);
  view.setUint8(nic + 16, 2);
  view.setUint8(nic + 18, 4);
  view.setBigUint64(nic + 24, 5_000_000_000_000n, true);
  const flow = nic + nicBytes;
  view.setBigUint64(flow, 0xabcn, true);
  view.setUint32(flow + 12, 2, true);
  view.setUint16(flow + 16, 0xffff, true);
  view.setUint8(flow + 18, 3);
  const op = flow + flowBytes;
  view.setBigUint64(op, 0xabcn, true);
  view.setBigUint64(op + 8, 41n, true);
  view.setUint16(op + 62, 201, true);
  change(view);
  return bytes;
}

function refusal(bytes: Uint8Array): TelemetryFrameError {
  try {
    decodeTelemetryFrame(bytes);
  } catch (error) {
    return error as TelemetryFrameError;
  }
  throw new Error('the frame was accepted');
}

describe('decodeTelemetryFrame', () => {
  it('gives the columns', () => {
    const decoded = decodeTelemetryFrame(frame());
    expect(decoded.node).toBe(2);
    expect(decoded.sequence).toBe(7);
    expect(decoded.realtimeNs).toBe(1_800_000_000_000_000_001n);
    expect(decoded.nics.name).toEqual(['rxe0']);
    expect(decoded.nics.state[0]).toBe(4);
    expect(decoded.nics.txBytes[0]).toBe(5e12);
    expect(decoded.flows.commId).toEqual(['0000000000000abc']);
    expect(decoded.flows.peerRank[0]).toBe(2);
    expect(decoded.flows.peerNode[0]).toBe(65535);
    expect(decoded.flows.transport[0]).toBe(3);
    expect(decoded.ops.sequence[0]).toBe(41);
    expect(decoded.ops.error[0]).toBe(201);
  });

  it('reads a view into a larger buffer, and copies', () => {
    const outer = new Uint8Array(1000);
    outer.set(frame(), 100);
    const decoded = decodeTelemetryFrame(outer.subarray(100, 100 + frame().length));
    outer.fill(0);
    expect(decoded.nics.txBytes[0]).toBe(5e12);
  });

  it('says null for a node that the daemon does not know', () => {
    expect(decodeTelemetryFrame(frame((view) => view.setUint16(10, 0xffff, true))).node).toBeNull();
  });

  it.each([
    ['truncated', frame().subarray(0, 100)],
    ['truncated', new Uint8Array(0)],
    ['bad_magic', frame((view) => view.setUint8(0, 0x7b))],
    ['bad_version', frame((view) => view.setUint16(8, 2, true))],
    ['too_long', frame((view) => view.setUint32(4, 0xffffffff, true))],
    ['bad_length', frame((view) => view.setUint32(48, 0xffffffff, true))],
    ['bad_length', new Uint8Array([...frame(), 0])],
    ['bad_value', frame((view) => view.setUint8(headerBytes + 16, 9))],
  ] as const)('refuses %s', (reason, bytes) => {
    const error = refusal(bytes);
    expect(error.code).toBe('TELEMETRY_FRAME_INVALID');
    expect(error.reason).toBe(reason);
  });

  it('replaces control characters of a name', () => {
    const decoded = decodeTelemetryFrame(frame((view) => view.setUint8(headerBytes, 0x1b)));
    expect(decoded.nics.name).toEqual(['?xe0']);
  });

  it('takes nothing but a Uint8Array', () => {
    for (const wrong of [undefined, null, 'S', {}, [], new Float64Array(20)]) {
      expect(() => decodeTelemetryFrame(wrong as unknown as Uint8Array)).toThrow(TypeError);
    }
  });

  it('survives random damage', () => {
    let seed = 1;
    const random = (): number => (seed = (seed * 1103515245 + 12345) & 0x7fffffff);
    for (let i = 0; i < 5000; i += 1) {
      const bytes = frame();
      for (let k = 0; k < 5; k += 1) bytes[random() % bytes.length] = random() & 255;
      try {
        decodeTelemetryFrame(bytes.subarray(0, random() % (bytes.length + 1)));
      } catch (error) {
        expect((error as TelemetryFrameError).code).toBe('TELEMETRY_FRAME_INVALID');
      }
    }
  });
});

describe('the model', () => {
  const ring = { collective: 'all_reduce', algorithm: 'ring', worldSize: 4 } as const;

  it('gives the textbook time of a ring', () => {
    const time = expectedTimeUs({ ...ring, bytes: 1e6, alphaUs: 10, betaUsPerByte: 0.001 });
    expect(time).toBeCloseTo(2 * 3 * 10 + 2 * (3 / 4) * 1e6 * 0.001, 3);
  });

  it('takes the cheapest algorithm for auto', () => {
    const options = { collective: 'all_reduce', worldSize: 8, bytes: 8, alphaUs: 50, betaUsPerByte: 0.001 } as const;
    expect(expectedTimeUs({ ...options, algorithm: 'auto' })).toBeLessThan(expectedTimeUs({ ...options, algorithm: 'ring' }));
  });

  it('answers for thousands of ranks at once', () => {
    const begin = performance.now();
    expect(expectedTimeUs({ ...ring, worldSize: 4096, bytes: 1e9, alphaUs: 5, betaUsPerByte: 1e-5 })).toBeGreaterThan(0);
    expect(performance.now() - begin).toBeLessThan(1000);
  });

  it('finds the parameters behind samples', () => {
    const samples = [8, 4096, 65536, 1 << 20, 1 << 24].map((bytes) => ({
      bytes,
      timeUs: expectedTimeUs({ ...ring, bytes, alphaUs: 700, betaUsPerByte: 0.025 }),
    }));
    const fit = fitAlphaBeta(samples, ring);
    expect(fit?.alphaUs).toBeCloseTo(700, 0);
    expect(fit?.betaUsPerByte).toBeCloseTo(0.025, 4);
    expect(fitAlphaBeta(samples.slice(0, 1), ring)).toBeNull();
  });

  it('refuses what it does not know', () => {
    const good = { ...ring, bytes: 8, alphaUs: 1, betaUsPerByte: 1 };
    expect(() => expectedTimeUs({ ...good, algorithm: 'carrier_pigeon' as 'ring' })).toThrow(expect.objectContaining({ code: 'UNKNOWN_NAME' }));
    expect(() => expectedTimeUs({ ...good, algorithm: 'bruck' })).toThrow(expect.objectContaining({ code: 'UNSUPPORTED_ALGORITHM' }));
    expect(() => expectedTimeUs({ ...good, worldSize: 0 })).toThrow(RangeError);
    expect(() => expectedTimeUs({ ...good, alphaUs: Number.NaN })).toThrow(RangeError);
    expect(() => expectedTimeUs(undefined as unknown as typeof good)).toThrow(TypeError);
    expect(() => fitAlphaBeta({} as unknown as [], ring)).toThrow(TypeError);
  });
});

describe('the module', () => {
  it('loads in several threads at once, each with its own errors', async () => {
    const source = `
      const { parentPort, workerData } = require('node:worker_threads');
      import(workerData).then((addon) => {
        let reason = '';
        try { addon.decodeTelemetryFrame(new Uint8Array(3)); } catch (error) { reason = error.reason; }
        parentPort.postMessage([addon.runtimeVersion(), reason]);
      });`;
    const answers = await Promise.all(Array.from({ length: 4 }, () => new Promise((resolve, reject) => {
      const worker = new Worker(source, { eval: true, workerData: new URL('./index.js', import.meta.url).href });
      worker.once('message', resolve);
      worker.once('error', reject);
    })));
    expect(answers).toEqual(Array.from({ length: 4 }, () => [runtimeVersion(), 'truncated']));
  });

  it('takes memory that is gone for an empty frame', () => {
    const bytes = frame();
    structuredClone(bytes.buffer, { transfer: [bytes.buffer as ArrayBuffer] });
    expect(bytes.length).toBe(0);
    expect(refusal(bytes).reason).toBe('truncated');
  });

  it('knows a hierarchical algorithm for every collective but messages', () => {
    for (const collective of ['all_reduce', 'all_gather', 'reduce_scatter', 'broadcast', 'reduce', 'scatter', 'gather', 'all_to_all', 'barrier'] as const) {
      expect(expectedTimeUs({ collective, algorithm: 'hierarchical', worldSize: 8, bytes: 4096, alphaUs: 10, betaUsPerByte: 0.001 }), collective).toBeGreaterThan(0);
    }
  });
});

it('tells its version', () => {
  expect(runtimeVersion()).toMatch(/^\d+\.\d+\.\d+$/);
});
