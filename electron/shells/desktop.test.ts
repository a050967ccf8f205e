import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { isOurPage, isTrustedSender, keepsSecrets, mayUse, PAGE_URL } from "./desktop-policy.js";
import { SecretFile, type Sealer } from "./secret-file.js";

describe("what the window trusts", () => {
  it.each([
    ["stepccl://console/index.html", true], ["stepccl://console/#/nodes", true], ["stepccl://console.evil/", false], ["stepccl://evil/console", false],
    ["stepccl://u@console/", false], ["https://console/", false], ["file:///index.html", false], ["about:blank", false], ["", false], ["javascript:alert(1)", false], ["stepccl:console", false],
  ])("%s: %s", (address, ours) => expect(isOurPage(address)).toBe(ours));

  it("takes messages from the main frame of our page in our window alone", () => {
    const frame = { url: PAGE_URL, parent: null };
    expect(isTrustedSender(frame, true)).toBe(true);
    expect(isTrustedSender(frame, false)).toBe(false);
    expect(isTrustedSender(null, true)).toBe(false);
    expect(isTrustedSender({ ...frame, parent: frame }, true)).toBe(false);
    expect(isTrustedSender({ ...frame, url: "https://evil.example/" }, true)).toBe(false);
  });
  it("grants the clipboard for writing and nothing else", () => {
    expect(mayUse("clipboard-sanitized-write", PAGE_URL)).toBe(true);
    expect(mayUse("clipboard-sanitized-write", "https://evil.example/")).toBe(false);
    for (const permission of ["clipboard-read", "media", "geolocation", "notifications", "openExternal", "hid", "serial", "usb"]) expect(mayUse(permission, PAGE_URL)).toBe(false);
  });
  it("refuses the keychain that is none", () => {
    expect([keepsSecrets("basic_text"), keepsSecrets("unknown"), keepsSecrets("gnome_libsecret"), keepsSecrets("system")]).toEqual([false, false, true, true]);
  });
});

describe("SecretFile", () => {
  let folder: string;
  const sealer = (backend: string): Sealer => ({ backend, seal: async (text) => Buffer.from([...text].reverse().join("")), open: async (sealed) => [...sealed.toString()].reverse().join("") });
  beforeEach(() => { folder = mkdtempSync(join(tmpdir(), "stepccl-secrets-")); });
  afterEach(() => rmSync(folder, { recursive: true }));

  it("keeps sealed secrets for this user alone, forgets them on demand", async () => {
    const path = join(folder, "d", "secrets.json");
    const keeper = new SecretFile(path, sealer("kwallet6"));
    expect(await keeper.get("n1")).toBeNull();
    await Promise.all([keeper.set("n1", "s3cret"), keeper.set("n2", "other")]);
    expect(readFileSync(path, "utf8")).not.toContain("s3cret");
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(await new SecretFile(path, sealer("kwallet6")).get("n1")).toBe("s3cret");
    await keeper.set("n1", null);
    expect([await keeper.get("n1"), await keeper.get("n2")]).toEqual([null, "other"]);
  });
  it("another keychain, or a file of another shape, gives nothing", async () => {
    const path = join(folder, "secrets.json");
    await new SecretFile(path, sealer("kwallet6")).set("n1", "s3cret");
    expect(await new SecretFile(path, sealer("gnome_libsecret")).get("n1")).toBeNull();
    writeFileSync(path, "[]");
    expect(await new SecretFile(path, sealer("kwallet6")).get("n1")).toBeNull();
  });
});
