import { createHash } from 'node:crypto';
import { homedir, tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Root of this clone. */
export const repoRoot = fileURLToPath(new URL('../../', import.meta.url)).replace(/\/$/, '');

/** Folder of the image recipe. */
export const recipeDir = fileURLToPath(new URL('./image/', import.meta.url)).replace(/\/$/, '');

/** Where everything of one clone's lab lives while it runs. */
export interface LabPlace {
  /** Name of this clone's lab: in the argument list of each of its processes, so that they can be found. */
  readonly token: string;
  /** State, disks, logs; removed by `down`. */
  readonly dir: string;
  /** Unix sockets; short, because a socket's path holds at most 107 bytes. Removed by `down`. */
  readonly socketDir: string;
}

/** The place of the lab whose run state lives in `dir`; the same `dir` gives the same place. */
export function labPlace(dir: string = join(repoRoot, 'build/out/lab')): LabPlace {
  const id = createHash('sha256').update(dir).digest('hex').slice(0, 12);
  const token = `stepccl-lab-${id}`;
  return { token, dir, socketDir: join(tmpdir(), `${token}-${userInfo().uid}`) };
}

/** Folder of the image cache, shared by all clones of a user. */
export function cacheRoot(): string {
  const base = process.env.XDG_CACHE_HOME;
  return join(base !== undefined && base.startsWith('/') ? base : join(homedir(), '.cache'), 'stepccl-console/lab');
}
