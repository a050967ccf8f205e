import { connect, type Socket } from 'node:net';
import { LabError } from './errors.js';

interface Pending {
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: Error) => void;
}

/** A connection to QEMU's control socket (QMP, docs/interop/qmp-spec.txt); one command at a time. */
export class Qmp {
  #pending: Pending | undefined;
  #buffer = '';
  #closed = false;

  private constructor(private readonly socket: Socket) {
    socket.setEncoding('utf8');
    socket.on('data', (text: string) => this.#read(text));
    socket.on('error', (error) => this.#fail(error));
    socket.on('close', () => this.#fail(new Error('QEMU closed its control socket')));
  }

  /** Connects and leaves the negotiation. @throws LabError LAB_QEMU_FAILED. */
  static async open(path: string): Promise<Qmp> {
    const socket = connect(path);
    const qmp = new Qmp(socket);
    await qmp.#answer(5000, 'greeting');
    await qmp.execute('qmp_capabilities');
    return qmp;
  }

  /** Runs a command and returns its `return` value. @throws LabError LAB_QEMU_FAILED. */
  async execute(command: string, args?: Record<string, unknown>, timeoutMs = 60_000): Promise<unknown> {
    const answer = this.#answer(timeoutMs, command);
    if (!this.#closed) this.socket.write(`${JSON.stringify({ execute: command, ...(args === undefined ? {} : { arguments: args }) })}\n`);
    return answer;
  }

  /** Runs a line of QEMU's human monitor, which answers with text; savevm and loadvm say nothing when all is well. */
  async monitor(line: string, timeoutMs = 120_000): Promise<string> {
    const text = await this.execute('human-monitor-command', { 'command-line': line }, timeoutMs);
    return typeof text === 'string' ? text.trim() : '';
  }

  close(): void {
    this.#closed = true;
    this.socket.destroy();
  }

  async #answer(timeoutMs: number, what: string): Promise<unknown> {
    if (this.#pending !== undefined) throw new Error('QMP takes one command at a time');
    let timer: NodeJS.Timeout | undefined;
    try {
      return await new Promise<unknown>((resolve, reject) => {
        this.#pending = { resolve, reject };
        timer = setTimeout(() => reject(new Error(`no answer within ${timeoutMs / 1000} s`)), timeoutMs);
        if (this.#closed) reject(new Error('QEMU has closed its control socket'));
      });
    } catch (error) {
      throw new LabError('LAB_QEMU_FAILED', `QEMU did not do ${what}: ${(error as Error).message}`, 'Look at qemu.log in the node\'s folder under build/out/lab-failed.', { cause: error });
    } finally {
      clearTimeout(timer);
      this.#pending = undefined;
    }
  }

  #read(text: string): void {
    this.#buffer += text;
    const lines = this.#buffer.split('\n');
    this.#buffer = lines.pop() ?? '';
    for (const line of lines) {
      const message = JSON.parse(line) as { QMP?: unknown; return?: unknown; error?: { desc?: string } };
      if (message.error !== undefined) this.#pending?.reject(new Error(message.error.desc ?? 'unknown error'));
      else if (message.QMP !== undefined || 'return' in message) this.#pending?.resolve(message.return);
      // Anything else is an event, which nobody here waits for.
    }
  }

  #fail(error: Error): void {
    this.#closed = true;
    this.#pending?.reject(error);
  }
}
