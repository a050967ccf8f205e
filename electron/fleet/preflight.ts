import { ConsoleError } from "../contract/index.js";
import type { Bundle } from "./bundle.js";
import type { Fields } from "./remote.js";

/** What preflight found, checked and typed. */
export interface Preflight {
  readonly user: string;
  readonly kernel: string;
  readonly os: string;
  readonly release: string | null;
  readonly canBuild: boolean;
  readonly probeSocket: string | null;
  readonly sshAddress: string | null;
  /** Node's clock minus the console's. */
  readonly skewSeconds: number | null;
  readonly summary: string;
}

/** Room beyond the files themselves: journals, rotated copies, the build of a module. */
const SPARE_BYTES = 16 * 1024 ** 2;

/**
 * Refuses a node that cannot be brought up, before a byte is copied.
 * @param clock the console's time in the middle of the look, and half of how long it took
 * @throws ConsoleError H304 not a supported system, H305 no room, H306 no module and no way to build one, H310 a tool is missing
 */
export function judgePreflight(fields: Fields, host: string, bundle: Bundle, clock: { nowMs: number; uncertaintyMs: number }): Preflight {
  const system = fields.one("system") ?? "an unknown system";
  const machine = fields.one("machine") ?? "unknown";
  const os = fields.one("os") ?? system;
  if (system !== "Linux" || machine !== "x86_64") throw ConsoleError.of("H304", { host, found: `${os} on ${machine}` });
  if (fields.one("systemd") !== "yes") throw ConsoleError.of("H304", { host, found: `${os} without systemd` });
  const missing = fields.all("missing");
  if (missing.length > 0) throw ConsoleError.of("H310", { command: missing.join(", "), host, status: 127, detail: "not installed on the node" });
  const kernel = fields.one("kernel") ?? "";
  if (!/^[A-Za-z0-9._+~-]{1,128}$/.test(kernel)) throw ConsoleError.of("H304", { host, found: `a kernel named "${kernel.slice(0, 60)}"` });

  const needs: [name: string, path: string, bytes: number][] = [
    ["free_opt", "/opt", bundle.unpackedBytes * 2 + SPARE_BYTES],
    ["free_tmp", "/var/tmp", bundle.sizeBytes + SPARE_BYTES],
    ["free_modules", "/lib/modules", SPARE_BYTES],
  ];
  for (const [name, path, needed] of needs) {
    const kib = fields.number(name);
    if (kib !== null && kib * 1024 < needed) throw ConsoleError.of("H305", { host, path, available: kib * 1024, needed });
  }
  const canBuild = fields.one("build") === "yes";
  if (!(kernel in bundle.kernels) && !canBuild) throw ConsoleError.of("H306", { host, release: kernel });

  const user = fields.one("user") ?? "";
  if (!/^[A-Za-z0-9_.@][A-Za-z0-9_.@-]{0,63}$/.test(user)) throw ConsoleError.of("H304", { host, found: `a login user named "${user.slice(0, 60)}"` });
  const time = fields.number("time");
  const skewSeconds = time === null ? null : Math.round(time - clock.nowMs / 1000);
  const skewed = skewSeconds !== null && Math.abs(skewSeconds) * 1000 > clock.uncertaintyMs + 1_500;
  const probe = fields.one("probe_socket");
  const address = fields.one("ssh_address");
  const secureBoot = fields.one("secureboot");
  const rdma = fields.all("rdma");
  const summary = [
    os, `kernel ${kernel}`, kernel in bundle.kernels ? "module in the bundle" : "module to be built on the node",
    secureBoot === "1" ? "Secure Boot is on: the module's key must be enrolled" : null,
    `RDMA ${rdma.length > 0 ? rdma.slice(0, 8).join(" ") : "none"}`, `memlock of this login ${fields.one("memlock") ?? "unknown"}`,
    skewed ? `clock ${(skewSeconds ?? 0) > 0 ? "ahead" : "behind"} by ${Math.abs(skewSeconds ?? 0)} s` : null,
  ].filter((part) => part !== null).join(", ");
  return {
    user, kernel, os, release: fields.one("release"), canBuild, skewSeconds, summary,
    probeSocket: probe !== null && /^\/run\/[a-z_/]{1,80}$/.test(probe) ? probe : null,
    sshAddress: address !== null && /^[0-9a-fA-F.:%a-z]{2,64}$/.test(address) ? address : null,
  };
}
