import { describe, expect, it } from "vitest";
import { FramingError, MAX_LINE_BYTES, MessageSplitter } from "./framing.js";
import { encodeFrame } from "./testing.js";

function collect(): { splitter: MessageSplitter; got: string[] } {
  const got: string[] = [];
  return { got, splitter: new MessageSplitter({ line: (text) => got.push(text), frame: (bytes) => got.push(`frame:${bytes.toString("hex")}`) }) };
}
const frame = encodeFrame({ nics: [{ name: "eth1", tx: 10, rx: 2573 }] });
const hex = `frame:${frame.toString("hex")}`;

describe("MessageSplitter", () => {
  it("gives the same messages however the bytes are cut", () => {
    const stream = Buffer.concat([Buffer.from('{"a":"é\\n"}\n'), frame, Buffer.from("{}\n"), frame, frame, Buffer.from('{"b":2}\n')]);
    const expected = ['{"a":"é\\n"}', hex, "{}", hex, hex, '{"b":2}'];
    for (const size of [1, 2, 3, 7, 79, 80, 81, 151, 152, stream.length]) {
      const { splitter, got } = collect();
      for (let at = 0; at < stream.length; at += size) splitter.push(stream.subarray(at, at + size));
      expect(got, `chunks of ${size}`).toEqual(expected);
      expect(splitter.pendingBytes).toBe(0);
    }
  });

  it("keeps a line of exactly the limit and refuses one byte more before its newline comes", () => {
    const { splitter, got } = collect();
    splitter.push(Buffer.from(`{${"x".repeat(MAX_LINE_BYTES - 1)}`));
    splitter.push(Buffer.from("\n"));
    expect(got[0]).toHaveLength(MAX_LINE_BYTES);
    splitter.push(Buffer.from(`{${"x".repeat(MAX_LINE_BYTES - 1)}`));
    expect(() => splitter.push(Buffer.from("y"))).toThrow(FramingError);
  });

  it.each([
    ["a blank line", Buffer.from("\n"), /0x0a/],
    ["text", Buffer.from("hello\n"), /0x68/],
    ["a wrong magic, at its second byte", Buffer.from("SX"), /magic/],
    ["a frame shorter than its header", Buffer.concat([Buffer.from("SCF1"), Buffer.from([79, 0, 0, 0])]), /79 bytes/],
    ["a frame above the limit", Buffer.concat([Buffer.from("SCF1"), Buffer.from([1, 0, 16, 0])]), /1048577 bytes/],
  ])("refuses %s", (_name, bytes, why) => {
    const { splitter } = collect();
    expect(() => splitter.push(bytes)).toThrow(why);
  });

  it("looks at each byte of a long line once", () => {
    const { splitter, got } = collect();
    const began = performance.now();
    splitter.push(Buffer.from("{"));
    for (let i = 0; i < 100_000; i++) splitter.push(Buffer.from("aaaaaaaa"));
    splitter.push(Buffer.from("\n"));
    expect(got[0]).toHaveLength(800_001);
    expect(performance.now() - began).toBeLessThan(3000);
  });
});
