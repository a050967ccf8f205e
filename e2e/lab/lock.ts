import { createServer } from 'node:net';
import { LabError } from './errors.js';

/**
 * Runs `action` while holding the lock `name`. The lock is an abstract Unix socket: the kernel gives it back
 * when the holder ends in any way, so a killed command leaves nothing to clean.
 * @throws LabError LAB_BUSY when another process holds it.
 */
export async function withLock<T>(name: string, action: () => Promise<T>): Promise<T> {
  const server = createServer((socket) => socket.destroy());
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      reject(
        error.code === 'EADDRINUSE'
          ? new LabError('LAB_BUSY', 'another command is changing this lab', 'Wait until it has ended, then repeat.', { cause: error })
          : error,
      );
    });
    server.listen(`\0${name}`, resolve);
  });
  server.unref();
  try {
    return await action();
  } finally {
    await new Promise<void>((resolve) => server.close(() => resolve()));
  }
}
