import { z } from "zod";

/**
 * An error that a person can meet. `code` is stable and the same in log, page, CLI and manual:
 * `H…` console host, `A…` daemon (agent/PROTOCOL.md), `R…` runtime (stepccl.h), `DE…` driver.
 */
export const ErrorView = z.object({
  code: z.string().regex(/^(H|A|R|DE)\d{3}$/),
  /** One sentence: what happened to what. English; the page looks `errors.<code>` up first. */
  message: z.string(),
  /** What to do next. */
  next: z.string(),
  /** Values for the translated text, and evidence. Plain text, hostile. */
  params: z.record(z.string(), z.union([z.string(), z.number(), z.boolean()])).optional(),
});
export type ErrorView = z.infer<typeof ErrorView>;

/** Every code of the console host, with its English text. `{name}` is filled from params. */
export const HOST_ERRORS = {
  H101: ["The request does not match the contract: {detail}.", "Update the page and the console to the same version."],
  H102: ["There is no method {method}.", "Update the page and the console to the same version."],
  H103: ["The session token is missing or wrong.", "Open the address that the console printed when it started."],
  H104: ["The request was cancelled.", "Start it again when you are ready."],
  H105: ["The console met an internal error: {detail}.", "Look into the console's log and report this with it."],
  H201: ["{host}:{port} does not answer ({detail}).", "Check that the node is powered, the address and port are right, and no firewall is between."],
  H202: ["The host key of {host} is not known yet: {fingerprint}.", "Compare the fingerprint with the one of the node and confirm it."],
  H203: ["The host key of {host} changed: expected {expected}, offered {fingerprint}.", "If the node was reinstalled, confirm the new key; otherwise somebody may be between you and the node."],
  H204: ["{host} refuses user {user} with the credentials tried: {detail}.", "Check the user name and key, and that the public key is in the node's authorized_keys."],
  H205: ["The key file {path} cannot be used: {detail}.", "Choose another key, or give its passphrase."],
  H206: ["The SSH server of {host} and this console share no {what} algorithm ({detail}).", "Enable a common algorithm on the node's SSH server."],
  H207: ["The connection to {host} was lost: {detail}.", "The console reconnects by itself; check the node if it stays away."],
  H208: ["The SSH server of {host} allows no more sessions.", "Close other sessions or raise MaxSessions on the node."],
  H209: ["{what} on {host} did not end within {seconds} s.", "Check the node's load and try again."],
  H210: ["The SSH server of {host} forbids stream-local forwarding, and the daemon's proxy failed: {detail}.", "Set AllowStreamLocalForwarding yes on the node."],
  H211: ["No SSH agent answers at {path}.", "Start ssh-agent and add your key, or choose a key file."],
  H212: ["The file {path} of known host keys cannot be read: {detail}.", "Make it readable or remove it; until then no key can be trusted."],
  H213: ["The host key of {host} is revoked: {fingerprint} ({source}).", "Do not connect; give the node a new host key, or remove the revocation if it is a mistake."],
  H301: ["There is no node {nodeId}.", "Reload the list of nodes."],
  H302: ["A node with address {host}:{port} and user {user} exists already.", "Use the existing entry."],
  H303: ["{user} may not become root on {host} without a password.", "Allow sudo without password for this user, or connect as root."],
  H304: ["{host} runs {found}; the console supports x86-64 Linux with systemd.", "Use a supported operating system on the node."],
  H305: ["{host} has {available} bytes free at {path}; {needed} are needed.", "Free space on the node and try again."],
  H306: ["No driver module matches kernel {release} of {host}.", "Install linux-headers-{release} on the console's machine or on the node and build the bundle again."],
  H307: ["The node's kernel refuses the driver module: {detail}.", "See the reason; with Secure Boot the module's key must be enrolled first."],
  H308: ["The file {path} on {host} is not the one that was sent (sha256 {found}, expected {expected}).", "Try again; check the node's disk if it repeats."],
  H309: ["The service stepccld on {host} did not start: {detail}.", "Look at the journal of stepccld on the node."],
  H310: ["{command} failed on {host} with status {status}: {detail}.", "See the output and mend its cause."],
  H311: ["The driver on {host} is in use by {holders} and cannot be replaced.", "Stop the jobs that use it and try again."],
  H312: ["Another bring-up of {host} is running.", "Wait for it, or cancel it."],
  H313: ["The bundle at {path} is missing or damaged: {detail}.", "Run npm run bundle."],
  H314: ["{host} is held by another console ({owner}, since {since}).", "Wait for it to finish, or break the lock."],
  H315: ["The driver on {host} loaded, but {path} is {found}.", "Check udev on the node: the rule 70-stepccl.rules must apply."],
  H401: ["The daemon on {host} does not answer: {detail}.", "Bring the node up, or look at the journal of stepccld."],
  H402: ["The daemon on {host} was lost while the run was going on.", "Look at the journal of stepccld on the node; the other nodes can be used at once."],
  H403: ["The daemon on {host} speaks protocol {found}, this console {expected}.", "Bring the node up again to bring both to one version."],
  H404: ["The daemon on {host} sent bytes that are no message: {detail}.", "Bring the node up again; report this if it repeats."],
  H501: ["A run needs at least two ranks.", "Choose more nodes or more ranks per node."],
  H502: ["{name} is not up, so no rank can start there.", "Bring the node up first, or leave it out."],
  H503: ["{name} has no address for {transport}.", "Choose another transport, or give the node an address or an RDMA device."],
  H504: ["Rank {rank} on {name} ended before the run was over: {detail}.", "See the rank's error and the node's log."],
  H505: ["There is no run {runId}.", "Reload the list of runs."],
  H506: ["{name} is busy with run {runId}.", "Wait for it to end, or stop it."],
  H601: ["The newest checks of {name} show no finding {findingId} that could be mended ({detail}).", "Run the checks of this node again."],
  H602: ["The console does not apply {mendId} to {name}.", "Run the command yourself where it belongs."],
  H603: ["The offer was used already, or is too old.", "Ask for it again and read the commands."],
  H604: ["The commands are not those that were offered.", "Ask for the offer again and confirm it as it is shown."],
  H605: ["This mend destroys something: it takes a second consent.", "Type {expected} to confirm it."],
  H606: ["The guide {guideId} takes {takes}.", "Choose the nodes that it is about."],
  H607: ["These pairs cannot be tested: {detail}.", "Choose nodes that are up and have the device."],
  H608: ["The file {name} cannot be used: {detail}.", "Check the file, or take a smaller part of it."],
  H609: ["There is no {what} {id}.", "Start again: it was ended, or is too old."],
  H610: ["{name} is being mended: {what}.", "Wait for it to end, or cancel it."],
} as const satisfies Record<string, readonly [string, string]>;
export type HostErrorCode = keyof typeof HOST_ERRORS;

const fill = (text: string, params: Record<string, string | number | boolean>): string =>
  text.replace(/\{(\w+)\}/g, (whole, name: string) => (name in params ? String(params[name]) : whole));

/** The one error class of the host: thrown anywhere, shown everywhere. */
export class ConsoleError extends Error {
  readonly view: ErrorView;
  constructor(view: ErrorView, options?: { cause?: unknown }) {
    super(`${view.code}: ${view.message}`, options);
    this.name = "ConsoleError";
    this.view = view;
  }
  static of(code: HostErrorCode, params: Record<string, string | number | boolean> = {}, cause?: unknown): ConsoleError {
    const [message, next] = HOST_ERRORS[code];
    return new ConsoleError({ code, message: fill(message, params), next: fill(next, params), params }, { cause });
  }
}

/** Whatever was thrown, as something that can be shown; the unknown becomes H105. */
export function toErrorView(thrown: unknown): ErrorView {
  if (thrown instanceof ConsoleError) return thrown.view;
  if (thrown instanceof DOMException && thrown.name === "AbortError") return ConsoleError.of("H104").view;
  if (thrown instanceof Error && thrown.name === "AbortError") return ConsoleError.of("H104").view;
  return ConsoleError.of("H105", { detail: thrown instanceof Error ? thrown.message : String(thrown) }).view;
}
