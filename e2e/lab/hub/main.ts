/**
 * The hub's process: `main.ts TOKEN SOCKETDIR PORTS`. TOKEN is only there to be seen in the list of
 * processes. Opens SOCKETDIR/port-N.sock for N = 1..PORTS and SOCKETDIR/hub.sock, and ends when SOCKETDIR goes.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { startHub } from './server.js';

const [, socketDir, portsText] = process.argv.slice(2);
const ports = Number(portsText);
if (socketDir === undefined || !Number.isInteger(ports) || ports < 1) {
  process.stderr.write('usage: main.ts TOKEN SOCKETDIR PORTS\n');
  process.exit(2);
}
const portSockets = new Map(Array.from({ length: ports }, (_, i) => [i + 1, join(socketDir, `port-${i + 1}.sock`)]));
await startHub({
  portSockets,
  controlSocket: join(socketDir, 'hub.sock'),
  log: (message) => process.stdout.write(`${new Date().toISOString()} ${message}\n`),
});
// A hub whose sockets are gone serves nobody.
setInterval(() => existsSync(socketDir) || process.exit(0), 5000);
