import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { plainLine, shellCommand, shellQuote } from "./quote.js";

const HARD = ["", "plain", "two words", "'", "''", "it's", `"`, "$(touch /tmp/x)", "`id`", "$HOME", "\\", "\\'", "a\nb", "\t", "*", "~", "-n", "#", "!", "ünï→", "%s", ";", "&&", "|", "\u0001", "a'b\"c$d`e\\f"];
const shells = ["/bin/sh", "/bin/dash", "/bin/bash", "/usr/bin/bash"].filter((s) => existsSync(s));

describe("shellQuote", () => {
  it.each(shells)("gives every argument back through %s", (shell) => {
    for (const argument of HARD) {
      const command = `printf '%s\\0' ${shellQuote(argument)} x${shellQuote(argument)}`;
      expect(execFileSync(shell, ["-c", command]).toString("utf8")).toBe(`${argument}\0x${argument}\0`);
    }
    expect(execFileSync(shell, ["-c", shellCommand(["printf", "%s|", ...HARD])]).toString("utf8")).toBe(HARD.map((h) => `${h}|`).join(""));
  });

  it("survives being quoted twice, as for sudo sh -c", () => {
    for (const argument of HARD) {
      expect(execFileSync("/bin/sh", ["-c", `/bin/sh -c ${shellQuote(`printf %s ${shellQuote(argument)}`)}`]).toString("utf8")).toBe(argument);
    }
  });

  it("refuses a NUL byte, which no command line can carry", () => {
    expect(() => shellQuote("a\0b")).toThrow(expect.objectContaining({ view: expect.objectContaining({ code: "H101" }) }));
  });
});

describe("plainLine", () => {
  it("takes terminal escapes, control characters and bidirectional overrides out and bounds the length", () => {
    expect(plainLine("\u001b[31mred\u001b[0m\r\nnext\u0000\u202Eevil\u001b]0;title\u0007end")).toBe("red next evilend");
    expect(plainLine("x".repeat(1_000), 10)).toBe(`${"x".repeat(9)}…`);
  });
});
