import { describe, expect, it } from 'vitest';
import { encodeFrame, FrameDecoder, FramingError, maxFrameBytes, minFrameBytes } from './framing.js';

const frame = (length: number, fill: number): Buffer => Buffer.alloc(length, fill);

describe('FrameDecoder', () => {
  it('returns the frames of one chunk in order', () => {
    const frames = [frame(60, 1), frame(minFrameBytes, 2), frame(maxFrameBytes, 3)];
    const got = new FrameDecoder().push(Buffer.concat(frames.map(encodeFrame)));
    expect(got.length).toBe(3);
    got.forEach((one, i) => expect(one.equals(frames[i] as Buffer)).toBe(true));
  });

  it('puts frames together that are torn at every possible place', () => {
    const frames = [frame(14, 1), frame(33, 2), frame(20, 3)];
    const stream = Buffer.concat(frames.map(encodeFrame));
    for (let first = 0; first <= stream.length; first++) {
      for (let second = first; second <= stream.length; second++) {
        const decoder = new FrameDecoder();
        const got = [stream.subarray(0, first), stream.subarray(first, second), stream.subarray(second)].flatMap((piece) => decoder.push(piece));
        if (got.length !== 3 || got.some((one, i) => !one.equals(frames[i] as Buffer))) expect(got, `torn at ${first} and ${second}`).toEqual(frames);
      }
    }
  });

  it('takes a stream byte by byte', () => {
    const decoder = new FrameDecoder();
    const stream = encodeFrame(frame(100, 7));
    const got = [...stream].flatMap((byte) => decoder.push(Buffer.from([byte])));
    expect(got).toEqual([frame(100, 7)]);
  });

  it.each([0, 1, minFrameBytes - 1, maxFrameBytes + 1, 0x7fffffff, 0xffffffff])('refuses a length of %i before any of the frame is there', (length) => {
    const header = Buffer.alloc(4);
    header.writeUInt32BE(length);
    expect(() => new FrameDecoder().push(header)).toThrow(FramingError);
  });

  it('does not share memory with the chunk', () => {
    const chunk = encodeFrame(frame(20, 5));
    const [got] = new FrameDecoder().push(chunk);
    chunk.fill(9);
    expect(got).toEqual(frame(20, 5));
  });
});
