import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { existsSync } from "node:fs";
import { userInfo } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { importSshConfig } from "./config_import.js";
import { makeKey, tempDir } from "./testing/sshd.js";

const dir = tempDir();
const key = makeKey(dir, "id");
const locked = makeKey(dir, "locked", "ed25519", "secret");
afterAll(() => rmSync(dir, { recursive: true, force: true }));

const path = join(dir, "config");
const marker = join(dir, "executed");
mkdirSync(join(dir, "conf.d"));
writeFileSync(join(dir, "conf.d", "10-rack.conf"), `Host gpu1 gpu2\n  HostName %h.rack\n  ProxyJump gate\n  IdentityFile ${key.path}\n  ForwardAgent yes\n`);
writeFileSync(join(dir, "conf.d", "20-loop.conf"), `Include ${path}\n`);
const base = [
  "User everyone", `Include ${dir}/conf.d/*.conf`, "Host gate", "  HostName 10.0.0.1", "  Port 2222", "  User jumper",
  "Host far", "  HostName far.example", `  ProxyJump gpu1,ops@[fe80::1]:2200`, `  IdentityFile ${locked.path}`, "  HostKeyAlias elsewhere",
  "Host *.pattern !no", "  User never", "Host tunnel", "  ProxyCommand nc -x proxy %h %p", "",
].join("\n");

async function importAll(ssh: string | null) {
  const hosts = await importSshConfig({ path, ssh });
  return new Map(hosts.map((h) => [h.alias, h]));
}

describe.each(existsSync("/usr/bin/ssh") ? ["/usr/bin/ssh", null] : [null])("importing ~/.ssh/config with %s", (ssh) => {
  it("lists named hosts, follows Include, resolves hops and says what is not applied", async () => {
    writeFileSync(path, base);
    const hosts = await importAll(ssh);
    expect([...hosts.keys()]).toEqual(["gpu1", "gpu2", "gate", "far", "tunnel"]);
    expect(hosts.get("gate")?.input).toMatchObject({ host: "10.0.0.1", port: 2222, auth: { kind: "agent" }, jump: [] });
    expect(hosts.get("gpu1")?.input).toMatchObject({ name: "gpu1", host: "gpu1.rack", port: 22, user: "everyone", auth: { kind: "key", keyPath: key.path }, jump: ["everyone@10.0.0.1:2222"] });
    expect(hosts.get("gpu1")?.notApplied.join()).toMatch(/ForwardAgent yes/);
    expect(hosts.get("far")?.input.jump).toEqual(["everyone@10.0.0.1:2222", "everyone@gpu1.rack:22", "ops@[fe80::1]:2200"]);
    expect(hosts.get("far")?.input.auth).toEqual({ kind: "agent" });
    expect(hosts.get("far")?.notApplied.join()).toMatch(/HostKeyAlias elsewhere.*|IdentityFile .*passphrase/);
    expect(hosts.get("tunnel")?.notApplied.join()).toMatch(/ProxyCommand nc/);
    expect(hosts.get("gate")?.notApplied.join()).toMatch(/includes itself/);
  });

  it("never runs a Match exec command", async () => {
    writeFileSync(path, `Match exec "touch ${marker}"\n  User evil\nHost one\n  HostName 1.2.3.4\n`);
    const hosts = await importAll(ssh);
    expect(hosts.get("one")?.input).toMatchObject({ host: "1.2.3.4", user: userInfo().username });
    expect(hosts.get("one")?.notApplied.join()).toMatch(/Match exec/);
    expect(existsSync(marker)).toBe(false);
  });

  it("gives nothing for a missing file and leaves out what is no valid host", async () => {
    rmSync(path, { force: true });
    expect(await importSshConfig({ path, ssh })).toEqual([]);
    writeFileSync(path, "Host ok\n  HostName 1.2.3.4\nHost bad;name\nHost -x\n");
    expect([...(await importAll(ssh)).keys()]).toEqual(["ok"]);
  });
});
