/**
 * Takes what logging put in front of a message off it: time stamps in the forms that kernels, journals and launchers write,
 * host, tag, priority, rank. Scans forward only, a bounded number of prefixes: linear.
 */
export interface Prefix {
  /** Where the message begins. */
  start: number;
  /** Blanks in front of the first thing that is none. */
  indent: number;
  stamped: boolean;
  /** Seconds on the clock named by `clock`. */
  time: number | null;
  clock: "uptime" | "relative" | "wall" | null;
  host: string | null;
  tag: string | null;
}

const MONTHS: Record<string, number> = {
  jan: 0, feb: 1, mar: 2, apr: 3, may: 4, jun: 5, jul: 6, aug: 7, sep: 8, oct: 9, nov: 10, dec: 11,
  fev: 1, "fév": 1, mai: 4, juin: 5, juil: 6, "aoû": 7, ago: 7, okt: 9, dez: 11, "déc": 11, dic: 11, ene: 0, abr: 3, set: 8, ott: 9, gen: 0, mag: 4, giu: 5, lug: 6,
  jui: 5, maj: 4, "mär": 2, "février": 1, "août": 7, out: 9,
};
const MAX_PREFIXES = 10;

const isDigit = (c: number): boolean => c >= 48 && c <= 57;
const isBlank = (c: number): boolean => c === 32 || c === 9 || c === 0xa0 || c === 0x3000;

const ISO = /(\d{4})[-/](\d\d)[-/](\d\d)[T ](\d\d):(\d\d):(\d\d)(?:([.,])(\d{1,9}))?(Z|[+-]\d\d:?\d\d)?/y;
const TIME = /(\d{1,2}):(\d\d):(\d\d)/;
const KLOG = /[IWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.\d+\s+\d+ [\w.-]+:\d+\] /y;
const FACILITY = /(?:kern|user|daemon|auth|syslog|local\d|mail|cron|lpr|news|uucp|ftp|authpriv)\s*:(?:emerg|alert|crit|err|warn|notice|info|debug)\s*:\s*/y;
const HOST_TAG = /([A-Za-z0-9][\w.-]{0,253}) ([A-Za-z_][\w./@-]{0,63}?)(\[\d{1,10}\])?:(?: |$)/y;
const HOST_KERNEL = /([A-Za-z0-9][\w.-]{0,253}) kernel(\[\d{1,10}\])?:(?: |$)/y;
const TAG_ONLY = /(kernel|systemd(?:-[\w-]{1,40})?|modprobe|insmod|stepccld)(\[\d{1,10}\])?:(?: |$)/y;
const KMSG = /\d{1,3},\d{1,12},(\d{1,15}),[-cF+]*[^;]{0,40};/y;
const HOST_BEFORE_STAMP = /([A-Za-z0-9][\w.-]{0,253}):\s{1,4}(?=\[|<\d|\w{3} [ \d]\d \d\d:|\d{4}-\d\d-\d\dT)/y;
const RANK_STREAM = /\[\d{1,6},\d{1,6}\]<std(?:err|out|diag)>:?\s*/y;
const RANK_NAME = /\[(?:rank|default|worker)\d{1,6}\]:\s?/y;
const CALLER = /\[\s{0,8}[TC]\d{1,10}\]/y;
const CRI = /(?:stdout|stderr) [FP] /y;
const SYSLOG = /(?:\w{3,4}\.? )?([^\s\d:[\](){}<>=/,;"']{1,10}?)\.?\s+(\d{1,2})\s+(?:(\d{4})\s+)?(\d\d):(\d\d):(\d\d)(?:[.,]\d{1,9})?\s+/y;
const DAY_MONTH = /(\d{1,2})\s?(月|[^\s\d:[\](){}<>=/,;"']{3,10})\.?\s+(?:(\d{1,2})\s+)?(?:(\d{4})\s+)?(\d\d):(\d\d):(\d\d)(?:[.,]\d{1,9})?\s+/y;

const FACILITIES = new Set(["ker", "use", "dae", "aut", "sys", "loc", "mai", "cro", "lpr", "new", "uuc", "ftp"]);
const TAG_STARTS = new Set([..."ksmi"].map((c) => c.charCodeAt(0)));
/** First words of kernel messages that look like a host before a tag. */
const NO_HOST = new Set(["infiniband", "nvidia", "nvme", "pci", "usb", "net", "mlx5_core", "mlx4_core"]);

function at(re: RegExp, text: string, i: number): RegExpExecArray | null {
  re.lastIndex = i;
  return re.exec(text);
}

function month(name: string): number {
  const key = name.toLowerCase().replace(".", "");
  return MONTHS[key] ?? MONTHS[key.slice(0, 3)] ?? 0;
}

/** A wall clock without a year still sorts within one file. */
function wall(year: number, mon: number, day: number, h: number, m: number, s: number): number {
  return Date.UTC(year || 1970, mon, day, h, m, s) / 1000;
}

export function parsePrefix(text: string): Prefix {
  const p: Prefix = { start: 0, indent: 0, stamped: false, time: null, clock: null, host: null, tag: null };
  let i = 0;
  while (i < text.length && isBlank(text.charCodeAt(i))) i++;
  p.indent = i;
  let journal = false;
  for (let round = 0; round < MAX_PREFIXES && i < text.length; round++) {
    const before = i;
    const c = text.charCodeAt(i);
    if (c === 91) {
      i = bracket(text, i, p);
    } else if (c === 60) {
      const end = text.indexOf(">", i);
      if (end > i + 1 && end <= i + 4 && isDigit(text.charCodeAt(i + 1))) i = end + 1;
    } else if (isDigit(c)) {
      let m: RegExpExecArray | null;
      const end = isoEnd(text, i);
      if (end > 0) {
        const mark = text.charCodeAt(i + 19);
        // Programs that write a comma write milliseconds, and a blank for the T.
        const micros = mark === 44 && text.charCodeAt(i + 10) === 84 && isDigit(text.charCodeAt(i + 25));
        const fraction = mark === 46 || mark === 44 ? Number(`0.${/^\d{1,9}/.exec(text.slice(i + 20, i + 29))?.[0] ?? "0"}`) : 0;
        setWall(p, wall(number(text, i, 4), number(text, i + 5, 2) - 1, number(text, i + 8, 2), number(text, i + 11, 2), number(text, i + 14, 2), number(text, i + 17, 2)) + fraction);
        i = end;
        // dmesg writes a comma and no host; journals and syslog write a dot or no fraction and a host.
        journal = mark !== 44;
        if (micros) p.tag ??= "kernel";
      } else if (!p.stamped && (m = at(KMSG, text, i))) {
        p.time = +m[1]! / 1e6; p.clock = "uptime"; p.stamped = true; i = KMSG.lastIndex;
      } else if (!p.stamped && (m = at(DAY_MONTH, text, i))) {
        const cjk = m[2] === "月";
        setWall(p, wall(+(m[4] ?? 0), cjk ? +m[1]! - 1 : month(m[2]!), +(cjk ? m[3] ?? 1 : m[1]!), +m[5]!, +m[6]!, +m[7]!));
        i = DAY_MONTH.lastIndex; journal = true;
      }
    } else {
      i = words(text, i, p, journal);
      if (!journal && p.stamped && p.clock === "wall" && i !== before && p.host === null && p.tag === null) journal = true;
    }
    if (i === before) break;
    while (i < text.length && isBlank(text.charCodeAt(i))) i++;
  }
  p.start = i;
  return p;
}

function number(text: string, i: number, digits: number): number {
  let n = 0;
  for (let k = i; k < i + digits; k++) n = n * 10 + text.charCodeAt(k) - 48;
  return n;
}

/** End of `2025-01-25T10:34:54,859532+00:00` and its like at `i`; 0 when there is none. */
function isoEnd(text: string, i: number): number {
  const dash = text.charCodeAt(i + 4);
  if ((dash !== 45 && dash !== 47) || text.charCodeAt(i + 7) !== dash || text.charCodeAt(i + 13) !== 58 || text.charCodeAt(i + 16) !== 58) return 0;
  const t = text.charCodeAt(i + 10);
  if (t !== 84 && t !== 32) return 0;
  for (const k of [0, 1, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18]) if (!isDigit(text.charCodeAt(i + k))) return 0;
  let e = i + 19;
  const mark = text.charCodeAt(e);
  if ((mark === 46 || mark === 44) && isDigit(text.charCodeAt(e + 1))) { e += 2; while (isDigit(text.charCodeAt(e))) e++; }
  const zone = text.charCodeAt(e);
  if (zone === 90) return e + 1;
  if ((zone === 43 || zone === 45) && isDigit(text.charCodeAt(e + 1)) && isDigit(text.charCodeAt(e + 2))) {
    e += 3;
    if (text.charCodeAt(e) === 58) e++;
    if (isDigit(text.charCodeAt(e)) && isDigit(text.charCodeAt(e + 1))) e += 2;
  }
  return e;
}

/** Host and tag of syslog at `i`: `node01 kernel: ` or `node01 systemd[1]: `; false when they are not there. */
function hostAndTag(text: string, i: number, p: Prefix): number {
  const blank = text.indexOf(" ", i);
  const colon = text.indexOf(":", blank);
  if (blank <= i || blank - i > 254 || colon < 0 || colon - blank > 80 || (colon + 1 < text.length && text.charCodeAt(colon + 1) !== 32)) return 0;
  let end = colon;
  if (text.charCodeAt(colon - 1) === 93) { end = text.lastIndexOf("[", colon); if (end <= blank) return 0; }
  for (let k = i; k < end; k++) if (k !== blank && !HOST_CHARS.has(text.charCodeAt(k))) return 0;
  if (isDigit(text.charCodeAt(blank + 1))) return 0;
  p.host ??= text.slice(i, blank);
  p.tag = text.slice(blank + 1, end);
  return colon + 1;
}
const HOST_CHARS = new Set([..."ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-/@"].map((c) => c.charCodeAt(0)));

/** `Apr 22 18:10:16 host tag: `, by place. */
function syslog(text: string, i: number, p: Prefix): number {
  if (text.charCodeAt(i + 3) !== 32 || text.charCodeAt(i + 6) !== 32 || text.charCodeAt(i + 9) !== 58 || text.charCodeAt(i + 12) !== 58 || text.charCodeAt(i + 15) !== 32) return 0;
  const mon = MONTHS[text.slice(i, i + 3).toLowerCase()];
  if (mon === undefined) return 0;
  for (const k of [5, 7, 8, 10, 11, 13, 14]) if (!isDigit(text.charCodeAt(i + k))) return 0;
  const tens = text.charCodeAt(i + 4);
  setWall(p, wall(0, mon, (tens === 32 ? 0 : tens - 48) * 10 + number(text, i + 5, 1), number(text, i + 7, 2), number(text, i + 10, 2), number(text, i + 13, 2)));
  return hostAndTag(text, i + 16, p) || i + 16;
}

function setWall(p: Prefix, seconds: number): void {
  p.stamped = true;
  if (p.clock === null || p.clock === "wall") { p.time = seconds; p.clock = "wall"; }
}

function bracket(text: string, i: number, p: Prefix): number {
  const end = text.indexOf("]", i);
  if (end < 0 || end - i > 48) return i;
  let k = i + 1;
  while (k < end && text.charCodeAt(k) === 32) k++;
  const sign = text.charCodeAt(k) === 43 || text.charCodeAt(k) === 45;
  if (sign) k++;
  let dot = -1;
  let q = k;
  for (; q < end; q++) {
    const c = text.charCodeAt(q);
    if (c === 46 && dot < 0) dot = q;
    else if (!isDigit(c)) break;
  }
  if (q === end && dot > k) {
    const seconds = Number(text.slice(k, end));
    // Programs such as UCX write the seconds since 1970 in the same form; no machine has been up for thirty years.
    if (!sign && seconds >= 1e9) setWall(p, seconds);
    else { p.time = seconds; p.clock = sign ? "relative" : "uptime"; p.stamped = true; }
    return end + 1;
  }
  if (p.stamped && at(CALLER, text, i)) return CALLER.lastIndex;
  if (at(RANK_STREAM, text, i)) return RANK_STREAM.lastIndex;
  if (at(RANK_NAME, text, i)) return RANK_NAME.lastIndex;
  if (end - i === 25) {
    const seconds = ctime(text, i + 1);
    if (seconds !== null) { setWall(p, seconds); return end + 1; }
  }
  const inner = text.slice(i + 1, end);
  const t = inner.length >= 8 ? TIME.exec(inner) : null;
  if (!t) return i;
  const m = at(ISO, inner, 0);
  if (m) setWall(p, wall(+m[1]!, +m[2]! - 1, +m[3]!, +m[4]!, +m[5]!, +m[6]!) + (m[8] ? +`0.${m[8]}` : 0));
  else {
    const parts = inner.split(/\s+/);
    const day = parts.find((x) => /^\d{1,2}$/.test(x));
    const year = parts.find((x) => /^\d{4}$/.test(x));
    const mon = parts.length > 1 && /^\D/.test(parts[1]!) ? month(parts[1]!) : (parseInt(parts[1] ?? "1", 10) || 1) - 1;
    setWall(p, wall(+(year ?? 0), Math.min(11, mon), +(day ?? 1), +t[1]!, +t[2]!, +t[3]!));
  }
  return end + 1;
}

/** `Fri Mar  3 04:44:24 2023`, the form that dmesg -T writes: by place, since a log may hold a million of them. */
function ctime(text: string, at: number): number | null {
  if (text.charCodeAt(at + 13) !== 58 || text.charCodeAt(at + 16) !== 58) return null;
  const mon = MONTHS[text.slice(at + 4, at + 7).toLowerCase()];
  const two = (k: number): number => { const hi = text.charCodeAt(at + k); return (hi === 32 ? 0 : hi - 48) * 10 + text.charCodeAt(at + k + 1) - 48; };
  const year = two(20) * 100 + two(22);
  if (mon === undefined || !(year > 1900 && year < 3000)) return null;
  return wall(year, mon, two(8), two(11), two(14), two(17));
}

function words(text: string, i: number, p: Prefix, journal: boolean): number {
  // After a kernel's own stamp only the tag can follow.
  if (p.clock === "uptime") {
    if (!text.startsWith("kernel:", i)) return i;
    p.tag ??= "kernel";
    return i + 7;
  }
  if (p.stamped && p.tag !== null) return i;
  let m: RegExpExecArray | null;
  if (!p.stamped && p.host === null && (m = at(HOST_BEFORE_STAMP, text, i))) {
    if (m[1] !== "kernel") p.host = m[1]!;
    return HOST_BEFORE_STAMP.lastIndex;
  }
  if (!p.stamped && (m = at(KLOG, text, i))) {
    setWall(p, wall(0, +m[1]! - 1, +m[2]!, +m[3]!, +m[4]!, +m[5]!));
    return KLOG.lastIndex;
  }
  if (!p.stamped) {
    const end = syslog(text, i, p);
    if (end > 0) return end;
  }
  if (!p.stamped && (m = at(SYSLOG, text, i))) {
    setWall(p, wall(+(m[3] ?? 0), month(m[1]!), +m[2]!, +m[4]!, +m[5]!, +m[6]!));
    const after = at(HOST_TAG, text, SYSLOG.lastIndex);
    if (after) { p.host = after[1]!; p.tag = after[2]!; return HOST_TAG.lastIndex; }
    return SYSLOG.lastIndex;
  }
  const colon = text.indexOf(":", i);
  if (colon < 0) return i;
  if (colon - i < 12 && FACILITIES.has(text.slice(i, i + 3)) && at(FACILITY, text, i)) return FACILITY.lastIndex;
  // Whatever is left to find ends in a colon after one or two words.
  if (colon - i > 340) return i;
  if (p.stamped && p.tag === null && text.indexOf(" kernel", i) > 0 && (m = at(HOST_KERNEL, text, i))) { p.host ??= m[1]!; p.tag = "kernel"; return HOST_KERNEL.lastIndex; }
  if (p.tag === null && TAG_STARTS.has(text.charCodeAt(i)) && (m = at(TAG_ONLY, text, i))) { p.tag = m[1]!; return TAG_ONLY.lastIndex; }
  if (p.stamped && p.clock === "wall" && p.tag === null && journal && !NO_HOST.has(text.slice(i, text.indexOf(" ", i)))) {
    const end = hostAndTag(text, i, p);
    if (end > 0) return end;
  }
  if (p.stamped && text.startsWith("std", i) && at(CRI, text, i)) return CRI.lastIndex;
  return i;
}
