import { ConsoleError } from "../contract/index.js";

/** One SSH server and the user there. */
export interface Endpoint {
  readonly host: string;
  readonly port: number;
  readonly user: string;
}

/** The name under which known_hosts lists this server: `host`, or `[host]:port` where the port is not 22. Lower case. */
export function hostKeyName(endpoint: { host: string; port: number }): string {
  const host = endpoint.host.toLowerCase();
  return endpoint.port === 22 ? host : `[${host}]:${endpoint.port}`;
}

/** `user@host:port` for people; IPv6 addresses in brackets. */
export function endpointText(endpoint: Endpoint): string {
  return `${endpoint.user}@${endpoint.host.includes(":") ? `[${endpoint.host}]` : endpoint.host}:${endpoint.port}`;
}

const JUMP = /^(?:(?<user>[A-Za-z0-9_.][A-Za-z0-9_.@-]*)@)?(?:\[(?<v6>[0-9A-Fa-f:.%A-Za-z0-9]+)\]|(?<host>[A-Za-z0-9._%][A-Za-z0-9._%-]*))(?::(?<port>\d{1,5}))?$/;

/**
 * A hop as ProxyJump writes it: `[user@]host[:port]`, also `ssh://[user@]host[:port]`. Without a user the node's own is taken.
 * @throws ConsoleError H101
 */
export function parseJump(text: string, defaultUser: string): Endpoint {
  const match = JUMP.exec(text.trim().replace(/^ssh:\/\//, "").replace(/\/$/, ""));
  const host = match?.groups?.["v6"] ?? match?.groups?.["host"];
  const port = Number(match?.groups?.["port"] ?? 22);
  if (!host || port < 1 || port > 65535) throw ConsoleError.of("H101", { detail: `"${text.slice(0, 100)}" is no jump host; write [user@]host[:port]` });
  return { host, port, user: match?.groups?.["user"] ?? defaultUser };
}
