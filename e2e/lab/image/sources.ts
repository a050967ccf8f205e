import { LabError } from '../errors.js';
import { runCommand } from '../processes.js';

/**
 * The Debian archives of this machine's own apt configuration, as one-line entries for mmdebstrap.
 * @throws LabError LAB_IMAGE_BUILD when apt knows no Debian archive of `codename`.
 */
export async function debianSources(codename: string): Promise<string> {
  const format = '$(ORIGIN)|$(CODENAME)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)';
  const { stdout } = await runCommand('apt-get', ['indextargets', '--format', format, 'Created-By: Packages']);
  return sourcesFromTargets(stdout, codename);
}

/** Turns lines `ORIGIN|CODENAME|URI|RELEASE|COMPONENT` into entries of sources.list, one for each suite. */
export function sourcesFromTargets(targets: string, codename: string): string {
  const components = new Map<string, Set<string>>();
  for (const line of targets.split('\n')) {
    const [origin, name, uri, release, component] = line.split('|');
    if (origin !== 'Debian' || uri === undefined || release === undefined || component !== 'main') continue;
    if (name !== codename && name !== `${codename}-updates` && name !== `${codename}-security`) continue;
    const key = `${uri} ${release}`;
    components.set(key, (components.get(key) ?? new Set()).add(component));
  }
  if (components.size === 0) {
    throw new LabError('LAB_IMAGE_BUILD', `apt knows no Debian archive of ${codename}`, 'Name one in /etc/apt/sources.list, then run `apt-get update`.');
  }
  return [...components].map(([key, names]) => `deb ${key} ${[...names].join(' ')}\n`).join('');
}

/** Settings of the machine's apt that say how archives are reached; mmdebstrap does not read them by itself. */
export async function aptTransportOptions(): Promise<string[]> {
  const { stdout } = await runCommand('apt-config', ['dump']);
  return stdout.split('\n').filter((line) => /^Acquire::(https?|ftp|Retries|ForceIPv[46]|Check-Valid-Until|Check-Date)\b.*";$/.test(line) && !line.endsWith(' "";'));
}
