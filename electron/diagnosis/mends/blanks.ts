import { isIP } from "node:net";

const KEPT = "dpkg|apt|systemd|stepccl/|docker|containerd|containers|kubelet|rancher|etcd|ceph|mysql|mariadb|postgres|mongo|redis|elastic|influx|prometheus|grafana|libvirt|slurm|munge|nfs|rpm|pgsql|ldap|samba|cloud|private|dhcp|NetworkManager|ucf";
const LEFT_OVER = new RegExp(`^/(?:var/(?:tmp|crash|cache|lib/(?!${KEPT})[\\w.-]+)|tmp)/`);

/**
 * What may stand in a blank of a mend's command. Everything that fills one was said by a node, so each kind names the plain words that
 * it takes, none of which the shell reads as anything but themselves. A value of another shape leaves the mend out.
 */
export const KINDS = {
  netdev: (v) => /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}$/.test(v),
  rdma: (v) => /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,39}$/.test(v),
  kernel: (v) => /^\d[A-Za-z0-9_.+-]{0,63}$/.test(v),
  module: (v) => /^[a-z][a-z0-9_]{0,55}$/.test(v),
  service: (v) => /^[a-z][a-z0-9_-]{0,40}$/.test(v),
  user: (v) => /^[a-z_][a-z0-9_-]{0,31}$/.test(v),
  bdf: (v) => /^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$/.test(v),
  table: (v) => /^(?:ip6?|inet|netdev|bridge|arp) [A-Za-z0-9_][A-Za-z0-9_.-]{0,40}$/.test(v),
  chain: (v) => /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,40}$/.test(v),
  whole: (v) => /^\d{1,9}$/.test(v),
  signed: (v) => /^-?\d{1,9}$/.test(v),
  mtu: (v) => /^\d{2,5}$/.test(v) && Number(v) >= 1280 && Number(v) <= 65_535,
  pid: (v) => /^\d{1,7}$/.test(v) && Number(v) > 1,
  address: (v) => isIP(v) !== 0,
  network: (v) => { const [a, n] = v.split("/"); return isIP(a ?? "") !== 0 && /^\d{1,3}$/.test(n ?? ""); },
  node: (v) => /^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/.test(v),
  /** A left-over: never a file of the system, of StepCCL, of a data base or container, or of a user. */
  file: (v) => /^\/[\w.@+,=/-]{1,255}$/.test(v) && !v.includes("..") && LEFT_OVER.test(v),
} as const satisfies Record<string, (value: string) => boolean>;
export type Kind = keyof typeof KINDS;

const BLANK = /\{(\w+)(?::(\w+))?\}/g;

/** Names of the blanks of a command, each with its kind. @throws Error for a kind that there is not: the data is wrong */
export function blanksOf(command: string): { name: string; kind: Kind }[] {
  return [...command.matchAll(BLANK)].map(([, name, kind]) => {
    const of = kind ?? name!;
    if (!Object.hasOwn(KINDS, of)) throw new Error(`${command}: there is no kind ${of}`);
    return { name: name!, kind: of as Kind };
  });
}

/** The command with its blanks filled; null when a value is missing or is not of its kind. */
export function fillCommand(command: string, values: Readonly<Record<string, string | number | undefined>>): string | null {
  for (const { name, kind } of blanksOf(command)) {
    const value = values[name];
    if (value === undefined || !KINDS[kind](String(value))) return null;
  }
  return command.replace(BLANK, (_whole, name: string) => String(values[name]));
}
