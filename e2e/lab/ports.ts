import { createServer, type Server } from 'node:net';

/**
 * Chooses `count` TCP ports on 127.0.0.1 that are free now, all different. Another program may take one
 * before it is used: the caller starts again with a new one when its bind fails.
 */
export async function freePorts(count: number): Promise<number[]> {
  const servers: Server[] = [];
  try {
    const ports: number[] = [];
    // All are held open together, so that the kernel can't hand out one twice.
    for (let i = 0; i < count; i++) {
      const server = createServer();
      servers.push(server);
      await new Promise<void>((resolve, reject) => {
        server.once('error', reject);
        server.listen({ host: '127.0.0.1', port: 0, exclusive: true }, resolve);
      });
      const address = server.address();
      if (address === null || typeof address === 'string') throw new Error('a TCP server without a port');
      ports.push(address.port);
    }
    return ports;
  } finally {
    await Promise.all(servers.map((server) => new Promise<void>((resolve) => server.close(() => resolve()))));
  }
}
