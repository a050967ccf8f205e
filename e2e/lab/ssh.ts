import { createHash, timingSafeEqual } from 'node:crypto';
import { connect as connectTcp } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'ssh2';
import { LabError } from './errors.js';

export interface SshTarget {
  readonly port: number;
  readonly user: string;
  /** Private key, OpenSSH format. */
  readonly privateKey: string;
  /** `SHA256:` and the unpadded base64 of the host key's hash, as ssh-keygen -l prints it. */
  readonly hostKeySha256: string;
}

export interface ExecOptions {
  /** Sent to the command's standard input, which is then closed; a function is asked when the command starts. */
  readonly input?: string | (() => string);
  /** For the connection and the command together; 30 s when not given. */
  readonly timeoutMs?: number;
}

export interface ExecResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Fingerprint of a raw host key in OpenSSH's notation. */
export function fingerprint(rawKey: Buffer): string {
  return `SHA256:${createHash('sha256').update(rawKey).digest('base64').replace(/=+$/, '')}`;
}

/** Fingerprint of a line of a .pub file. */
export function fingerprintOfPublicKey(line: string): string {
  return fingerprint(Buffer.from(line.split(' ')[1] ?? '', 'base64'));
}

/** Waits until an SSH server greets on the port; QEMU's forwarding accepts before the guest listens. */
export async function waitForSshBanner(port: number, deadline: number, stopped: () => string | undefined): Promise<void> {
  while (Date.now() < deadline) {
    const why = stopped();
    if (why !== undefined) throw new LabError('LAB_QEMU_FAILED', why, 'The message is QEMU\'s own; mend its cause and repeat.');
    const greeted = await new Promise<boolean>((resolve) => {
      const socket = connectTcp({ host: '127.0.0.1', port });
      const done = (result: boolean): void => {
        socket.destroy();
        resolve(result);
      };
      socket.setTimeout(Math.min(4000, Math.max(1, deadline - Date.now())), () => done(false));
      socket.on('data', (data) => done(data.toString('latin1').startsWith('SSH-2.0-')));
      socket.on('error', () => done(false));
      socket.on('close', () => done(false));
    });
    if (greeted) return;
    await sleep(100);
  }
  throw new LabError('LAB_NOT_READY', `no SSH server greeted on 127.0.0.1:${port} in time`, 'Look at console.log in the node\'s folder under build/out/lab-failed.');
}

/**
 * Runs one shell command on a node over a connection of its own and returns its status and output.
 * The host key has to be the expected one.
 * @throws LabError LAB_SSH_FAILED.
 */
export async function sshExec(target: SshTarget, command: string, options: ExecOptions = {}): Promise<ExecResult> {
  const timeoutMs = options.timeoutMs ?? 30_000;
  const client = new Client();
  const expected = Buffer.from(target.hostKeySha256);
  let timer: NodeJS.Timeout | undefined;
  try {
    return await new Promise<ExecResult>((resolve, reject) => {
      const fail = (why: string, cause?: unknown): void =>
        reject(new LabError('LAB_SSH_FAILED', `SSH to 127.0.0.1:${target.port} failed: ${why}`, 'See with `npm run lab -- status` whether the node is running.', { cause }));
      timer = setTimeout(() => fail(`no result within ${timeoutMs / 1000} s`), timeoutMs);
      client.on('error', (error) => fail(error.message, error));
      client.on('close', () => fail('the connection closed'));
      client.on('ready', () => {
        client.setNoDelay(true);
        client.exec(command, (error, channel) => {
          if (error) return fail(error.message, error);
          let stdout = '';
          let stderr = '';
          let code: number | undefined;
          channel.setEncoding('utf8').on('data', (text: string) => (stdout += text));
          channel.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
          channel.on('exit', (status: number | null) => (code = status ?? 255));
          channel.on('close', () => (code === undefined ? fail('the command ended without a status') : resolve({ code, stdout, stderr })));
          channel.end(typeof options.input === 'function' ? options.input() : (options.input ?? ''));
        });
      });
      client.connect({
        host: '127.0.0.1',
        port: target.port,
        username: target.user,
        privateKey: target.privateKey,
        readyTimeout: timeoutMs,
        hostVerifier: (key: Buffer) => {
          const shown = Buffer.from(fingerprint(key));
          return shown.length === expected.length && timingSafeEqual(shown, expected);
        },
      });
    });
  } finally {
    clearTimeout(timer);
    client.removeAllListeners('close').removeAllListeners('error').on('error', () => undefined);
    client.end();
    client.destroy();
  }
}
