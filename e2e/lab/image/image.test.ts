import { mkdir, mkdtemp, rm, stat, utimes, writeFile, chmod } from 'node:fs/promises';
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { processRef } from '../processes.js';
import { removeDeadBuilds, removeUnusedImages } from './build.js';
import { packCpio } from './cpio.js';
import { bzImagePayload, installedHeadersRelease, moduleClosure } from './kernel.js';
import { listEntries, recipeHash } from './recipe.js';
import { sourcesFromTargets } from './sources.js';

describe('image', () => {
  let dir: string;
  beforeEach(async () => void (dir = await mkdtemp(join(tmpdir(), 'lab-image-'))));
  afterEach(() => rm(dir, { recursive: true }));

  it('takes the newest of the installed headers, by number and not by letter', async () => {
    for (const name of ['linux-headers-6.1.0-9-amd64', 'linux-headers-6.1.0-57-amd64', 'linux-headers-6.1.0-57-common', 'python3.11']) await mkdir(join(dir, name));
    expect(installedHeadersRelease(dir)).toBe('6.1.0-57-amd64');
    await rm(join(dir, 'linux-headers-6.1.0-57-amd64'), { recursive: true });
    await rm(join(dir, 'linux-headers-6.1.0-9-amd64'), { recursive: true });
    expect(() => installedHeadersRelease(dir)).toThrow('no kernel headers');
  });

  it('orders modules after what they depend on and knows built-in ones', () => {
    const dep = ['kernel/a.ko: kernel/b-x.ko kernel/c.ko', 'kernel/b-x.ko: kernel/c.ko', 'kernel/c.ko:', 'kernel/d.ko.xz:'].join('\n');
    expect(moduleClosure(['a', 'd'], dep, '')).toEqual(['kernel/c.ko', 'kernel/b-x.ko', 'kernel/a.ko', 'kernel/d.ko.xz']);
    expect(moduleClosure(['b_x'], dep, '')).toEqual(['kernel/c.ko', 'kernel/b-x.ko']);
    expect(moduleClosure(['e'], dep, 'kernel/e.ko\n')).toEqual([]);
    expect(() => moduleClosure(['missing'], dep, '')).toThrow('missing');
  });

  it('cuts the payload out of a kernel image and refuses anything else', () => {
    const xz = Buffer.concat([Buffer.from([0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00]), Buffer.alloc(40, 1)]);
    const image = Buffer.alloc(3 * 512 + 100 + xz.length + 4 + 50);
    image[0x1f1] = 2;
    image.write('HdrS', 0x202, 'latin1');
    image.writeUInt16LE(0x020f, 0x206);
    image.writeUInt32LE(100, 0x248);
    image.writeUInt32LE(xz.length + 4, 0x24c);
    xz.copy(image, 3 * 512 + 100);
    expect(bzImagePayload(image)).toEqual(xz);
    expect(() => bzImagePayload(Buffer.alloc(100))).toThrow('no boot header');
    const cut = Buffer.from(image.subarray(0, image.length - 60));
    expect(() => bzImagePayload(cut)).toThrow('outside');
    image[3 * 512 + 100] = 0x1f;
    expect(() => bzImagePayload(image)).toThrow('not xz');
  });

  it('reads list files and hashes content, mode and versions, not times', async () => {
    expect(listEntries('# c\na\n\n b # why\n')).toEqual(['a', 'b']);
    const file = join(dir, 'hook.sh');
    await writeFile(file, 'one');
    const first = recipeHash(dir, '6.1.0-57-amd64', { a: '1' });
    await writeFile(file, 'one');
    expect(recipeHash(dir, '6.1.0-57-amd64', { a: '1' })).toBe(first);
    await writeFile(join(dir, 'README.md'), 'words');
    await writeFile(join(dir, 'a.test.ts'), 'test');
    expect(recipeHash(dir, '6.1.0-57-amd64', { a: '1' })).toBe(first);
    const others = [recipeHash(dir, '6.1.0-58-amd64', { a: '1' }), recipeHash(dir, '6.1.0-57-amd64', { a: '2' })];
    await chmod(file, 0o755);
    others.push(recipeHash(dir, '6.1.0-57-amd64', { a: '1' }));
    await writeFile(file, 'two');
    others.push(recipeHash(dir, '6.1.0-57-amd64', { a: '1' }));
    expect(new Set([first, ...others]).size).toBe(5);
  });

  it('takes the Debian archives of apt\'s configuration and nobody else\'s', () => {
    const targets = ['Debian|bookworm|http://one/debian/|bookworm|main', 'Debian|bookworm|http://one/debian/|bookworm|contrib', 'Debian|bookworm-security|http://one/sec/|bookworm-security|main', 'Debian|trixie|http://one/debian/|trixie|main', 'Somebody|bookworm|http://two/|bookworm|main', ''].join('\n');
    expect(sourcesFromTargets(targets, 'bookworm')).toBe('deb http://one/debian/ bookworm main\ndeb http://one/sec/ bookworm-security main\n');
    expect(() => sourcesFromTargets('', 'bookworm')).toThrow('no Debian archive');
  });

  it('packs a folder so that cpio unpacks it, modes kept', async () => {
    await mkdir(join(dir, 'in/a b'), { recursive: true });
    await writeFile(join(dir, 'in/a b/file'), 'content', { mode: 0o640 });
    const archive = await packCpio(join(dir, 'in'));
    await mkdir(join(dir, 'out'));
    expect(spawnSync('cpio', ['--quiet', '-id'], { cwd: join(dir, 'out'), input: archive }).status).toBe(0);
    expect((await stat(join(dir, 'out/a b/file'))).mode & 0o777).toBe(0o640);
  });

  it('removes the folders of dead builds and leaves those that run', async () => {
    const self = processRef(process.pid);
    const mine = join(dir, `.build-${self?.pid}-${self?.startTicks}`);
    const dead = join(dir, `.build-${self?.pid}-1`);
    await mkdir(mine);
    await mkdir(join(dead, 'image'), { recursive: true });
    await mkdir(join(dir, 'abcdef'));
    await removeDeadBuilds(dir);
    expect([mine, dead, join(dir, 'abcdef')].map((path) => existsSync(path))).toEqual([true, false, true]);
  });

  it('removes images that were not used for long, and nothing else', async () => {
    const names = ['a'.repeat(20), 'b'.repeat(20), 'nodes', 'c'.repeat(20)];
    for (const name of names) await mkdir(join(dir, name));
    for (const [name, seconds] of [['a', 1000], ['b', 3000]] as const) {
      await writeFile(join(dir, name.repeat(20), 'complete'), '');
      await utimes(join(dir, name.repeat(20), 'complete'), seconds, seconds);
    }
    await removeUnusedImages(dir, 2_000_000);
    expect(names.map((name) => existsSync(join(dir, name)))).toEqual([false, true, true, true]);
  });
});
