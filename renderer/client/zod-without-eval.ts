import { config } from "zod";

// zod compiles its parsers with `new Function` where it can; the CSP forbids that and would report each probe.
config({ jitless: true });
