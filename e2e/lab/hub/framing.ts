/**
 * Framing of QEMU's `-netdev stream`: each Ethernet frame is preceded by its length, 4 bytes, big-endian
 * (QEMU net/socket.c, net/stream.c).
 */

/** The longest frame that QEMU sends: NET_BUFSIZE, 64 KiB + 4 KiB (QEMU include/net/net.h). */
export const maxFrameBytes = 4096 + 65536;
/** Destination and source address and type; anything shorter can't be switched. */
export const minFrameBytes = 14;

export class FramingError extends Error {
  override readonly name = 'FramingError';
}

/** Cuts a byte stream into frames; a frame may arrive in any number of pieces. */
export class FrameDecoder {
  readonly #header = Buffer.alloc(4);
  #headerBytes = 0;
  #frame: Buffer | undefined;
  #frameBytes = 0;

  /**
   * Takes the next bytes and returns the frames that are complete with them.
   * @throws FramingError when a length is outside the limits; the stream can't be followed after that.
   */
  push(chunk: Buffer): Buffer[] {
    const frames: Buffer[] = [];
    let at = 0;
    while (at < chunk.length) {
      if (this.#frame === undefined) {
        const taken = chunk.copy(this.#header, this.#headerBytes, at, at + 4 - this.#headerBytes);
        this.#headerBytes += taken;
        at += taken;
        if (this.#headerBytes < 4) break;
        this.#headerBytes = 0;
        const length = this.#header.readUInt32BE(0);
        if (length < minFrameBytes || length > maxFrameBytes) {
          throw new FramingError(`a frame of ${length} bytes; allowed are ${minFrameBytes} to ${maxFrameBytes}`);
        }
        this.#frame = Buffer.allocUnsafe(length);
        this.#frameBytes = 0;
      }
      const taken = chunk.copy(this.#frame, this.#frameBytes, at);
      this.#frameBytes += taken;
      at += taken;
      if (this.#frameBytes === this.#frame.length) {
        frames.push(this.#frame);
        this.#frame = undefined;
      }
    }
    return frames;
  }
}

/** A frame with its length in front, ready for the stream. */
export function encodeFrame(frame: Buffer): Buffer {
  const out = Buffer.allocUnsafe(4 + frame.length);
  out.writeUInt32BE(frame.length, 0);
  frame.copy(out, 4);
  return out;
}
