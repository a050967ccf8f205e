import { dirname, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import tseslint from "typescript-eslint";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");

/** A wall of the house: files that match `files` may not import what matches `patterns`. */
const wall = (files, patterns, message, ignores = []) => ({
  files, ignores,
  rules: { "no-restricted-imports": ["error", { patterns: [{ regex: patterns, message }] }] },
});
const ELECTRON = "^electron(/|$)";

export default tseslint.config(
  { ignores: ["**/node_modules/**", "build/out/**", "native/addon/build/**"] },
  ...tseslint.configs.recommended,
  { languageOptions: { parserOptions: { tsconfigRootDir: root } } },
  {
    files: ["**/*.{ts,tsx,mjs,js}"],
    rules: {
      eqeqeq: ["error", "always", { null: "ignore" }],
      "no-console": "off",
      "no-empty": ["error", { allowEmptyCatch: false }],
      "@typescript-eslint/consistent-type-imports": "error",
      "@typescript-eslint/no-unused-vars": ["error", { argsIgnorePattern: "^_", caughtErrors: "all" }],
      // A verifier that says yes to every key is how SSH clients lose their point; ours stands in ssh/ and is tested.
      "no-restricted-syntax": ["error", {
        selector: "Property[key.name='hostVerifier'] > ArrowFunctionExpression[body.value=true]",
        message: "A host key must be verified.",
      }],
    },
  },
  wall(["renderer/**/*.{ts,tsx}"], `(/electron/(?!contract/)|${ELECTRON})`, "The page knows the contract alone."),
  wall(["electron/contract/**/*.ts"], "^(?!\\./|zod$|vitest$)", "The contract imports zod and itself.", ["**/*.test.ts"]),
  wall(["electron/**/*.ts"], `(/renderer/|${ELECTRON})`, "The host never imports the page, nor Electron outside shells/desktop.ts and shells/preload.ts.",
    ["electron/contract/**", "electron/shells/desktop.ts", "electron/shells/preload.ts"]),
  wall(["electron/{ssh,link}/**/*.ts"], "/(fleet|telemetry|collectives|diagnosis|shells)/|/host\\.js$", "ssh and link stand below the fleet."),
  wall(["electron/fleet/**/*.ts"], "/(telemetry|collectives|diagnosis|shells)/|/host\\.js$", "The fleet stands below the rooms that use it."),
);
