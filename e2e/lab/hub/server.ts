import { createServer, type Server, type Socket } from 'node:net';
import { FrameDecoder, FramingError } from './framing.js';
import { hubRequest, type HubReply } from './protocol.js';
import { Switch } from './switch.js';

/** What a node may have unread before its frames are lost, as in the output queue of a switch. */
const queueBytes = 8 * 1024 * 1024;
const maxRequestBytes = 64 * 1024;

export interface HubOptions {
  /** Socket for the node with this index; one node a socket, so that a port is a node whatever its MAC. */
  readonly portSockets: ReadonlyMap<number, string>;
  readonly controlSocket: string;
  readonly log: (message: string) => void;
}

export interface Hub {
  close(): Promise<void>;
}

/** Opens the sockets of the hub and switches frames until it is closed. */
export async function startHub(options: HubOptions): Promise<Hub> {
  const fabric = new Switch();
  const servers: Server[] = [];
  const sockets = new Set<Socket>();
  const open = async (path: string, accept: (socket: Socket) => void): Promise<void> => {
    const server = createServer((socket) => {
      sockets.add(socket);
      socket.on('close', () => sockets.delete(socket));
      accept(socket);
    });
    servers.push(server);
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(path, resolve);
    });
  };
  for (const [port, path] of options.portSockets) {
    fabric.setLink(port, {});
    await open(path, (socket) => acceptNode(fabric, port, socket, options.log));
  }
  await open(options.controlSocket, (socket) => acceptControl(fabric, socket, options.log));
  return {
    close: async () => {
      for (const socket of sockets) socket.destroy();
      await Promise.all(servers.map((server) => new Promise<void>((resolve) => server.close(() => resolve()))));
    },
  };
}

function acceptNode(fabric: Switch, port: number, socket: Socket, log: (message: string) => void): void {
  const decoder = new FrameDecoder();
  const deliver = (bytes: Buffer): boolean => {
    if (socket.destroyed || socket.writableLength + bytes.length > queueBytes) return false;
    socket.write(bytes);
    return true;
  };
  fabric.attach(port, deliver);
  log(`node ${port} attached`);
  socket.on('data', (chunk) => {
    try {
      for (const frame of decoder.push(chunk)) fabric.receive(port, frame);
    } catch (error) {
      if (!(error instanceof FramingError)) throw error;
      log(`node ${port}: ${error.message}; connection closed`);
      socket.destroy();
    }
  });
  socket.on('error', (error) => log(`node ${port}: ${error.message}`));
  socket.on('close', () => {
    fabric.detach(port, deliver);
    log(`node ${port} detached`);
  });
}

function acceptControl(fabric: Switch, socket: Socket, log: (message: string) => void): void {
  let pending = '';
  socket.setEncoding('utf8');
  socket.on('data', (text: string) => {
    pending += text;
    const lines = pending.split('\n');
    pending = lines.pop() ?? '';
    for (const line of lines) socket.write(`${JSON.stringify(answer(fabric, line, log))}\n`);
    if (pending.length > maxRequestBytes) {
      socket.end(`${JSON.stringify({ ok: false, error: `a request longer than ${maxRequestBytes} bytes` })}\n`);
    }
  });
  socket.on('error', (error) => log(`control: ${error.message}`));
}

function answer(fabric: Switch, line: string, log: (message: string) => void): HubReply {
  let json: unknown;
  try {
    json = JSON.parse(line);
  } catch {
    return { ok: false, error: 'the request is not JSON' };
  }
  const parsed = hubRequest.safeParse(json);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    return { ok: false, error: `${issue?.path.join('.') || 'request'}: ${issue?.message ?? 'not valid'}` };
  }
  const request = parsed.data;
  if (request.op !== 'status') log(`control: ${line}`);
  switch (request.op) {
    case 'link': {
      const { dropPercent, delayMs, cut } = request;
      fabric.setLink(request.port, {
        ...(dropPercent === undefined ? {} : { dropPercent }),
        ...(delayMs === undefined ? {} : { delayMs }),
        ...(cut === undefined ? {} : { cut }),
      });
      break;
    }
    case 'pair':
      fabric.setPairCut(request.a, request.b, request.cut);
      break;
    case 'restore':
      fabric.restore(request.port);
      break;
    case 'status':
      break;
  }
  return { ok: true, ports: fabric.status(), cutPairs: fabric.cutPairs() };
}
