import { createServer } from 'node:net';
import { expect, it } from 'vitest';
import { freePorts } from './ports.js';
import { withLock } from './lock.js';

it('chooses different ports that can be bound', async () => {
  const ports = await freePorts(20);
  expect(new Set(ports).size).toBe(20);
  for (const port of ports) {
    await new Promise<void>((resolve, reject) => {
      const server = createServer();
      server.once('error', reject);
      server.listen(port, '127.0.0.1', () => server.close(() => resolve()));
    });
  }
});

it('never chooses a port that is in use', async () => {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  const used = typeof address === 'object' ? address?.port : undefined;
  for (let i = 0; i < 20; i++) expect(await freePorts(10)).not.toContain(used);
  server.close();
});

it('lets one at a time hold a lock, and gives it back after a failure', async () => {
  const name = `lab-lock-test-${process.pid}`;
  await withLock(name, async () => {
    await expect(withLock(name, async () => 1)).rejects.toMatchObject({ code: 'LAB_BUSY' });
  });
  await expect(withLock(name, () => Promise.reject(new Error('inside')))).rejects.toThrow('inside');
  await expect(withLock(name, async () => 2)).resolves.toBe(2);
});
