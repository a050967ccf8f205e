/** How a file's bytes become text. Detection reads the first bytes only; decoding never fails. */
export type Encoding = "utf-8" | "utf-16le" | "utf-16be" | "gb18030" | "windows-1252";

const SAMPLE_BYTES = 64 * 1024;

/** Encoding by mark, by the place of NUL bytes, or, where the bytes are no UTF-8, by the shape of their high bytes. */
export function detectEncoding(bytes: Uint8Array): Encoding {
  if (bytes[0] === 0xff && bytes[1] === 0xfe) return "utf-16le";
  if (bytes[0] === 0xfe && bytes[1] === 0xff) return "utf-16be";
  if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) return "utf-8";
  const sample = bytes.subarray(0, SAMPLE_BYTES);
  let evenNul = 0;
  let oddNul = 0;
  for (let i = 0; i < sample.length; i++) if (sample[i] === 0) { if (i & 1) oddNul++; else evenNul++; }
  const half = sample.length / 2;
  if (half >= 2 && oddNul > half * 0.4 && evenNul < half * 0.1) return "utf-16le";
  if (half >= 2 && evenNul > half * 0.4 && oddNul < half * 0.1) return "utf-16be";
  return legacyEncoding(sample);
}

function legacyEncoding(sample: Uint8Array): Encoding {
  let invalid = 0;
  let valid = 0;
  let evenRuns = 0;
  let oddRuns = 0;
  for (let i = 0; i < sample.length;) {
    const b = sample[i]!;
    if (b < 0x80) { i++; continue; }
    let run = i;
    while (run < sample.length && sample[run]! >= 0x80) run++;
    if (run < sample.length || i === 0) { if ((run - i) & 1) oddRuns++; else evenRuns++; }
    while (i < run) {
      const lead = sample[i]!;
      const need = lead >= 0xf0 && lead < 0xf5 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 0;
      let ok = need > 0 && i + need <= run;
      for (let k = 1; ok && k < need; k++) ok = (sample[i + k]! & 0xc0) === 0x80;
      if (ok) { valid++; i += need; } else { if (run < sample.length) invalid++; i++; }
    }
  }
  if (invalid === 0 || valid > invalid) return "utf-8";
  return evenRuns > oddRuns * 4 ? "gb18030" : "windows-1252";
}
