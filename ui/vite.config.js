import { readFileSync } from "node:fs";
import { defineConfig } from "vite";

// All parts of d3 have this licence, which must be in every copy.
const D3 = `/*! Includes parts of d3-array and d3-scale.\n${readFileSync("node_modules/d3-scale/LICENSE", "utf-8")}*/`;

// One script and one style sheet with fixed names: the report puts both into its HTML file.
export default defineConfig({
  build: {
    outDir: "../src/lostflops/show/report/assets",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    cssCodeSplit: false,
    lib: { entry: "src/main.ts", formats: ["es"], fileName: () => "app.js", cssFileName: "app" },
    // A library would keep its white space for further tools; this is read by browsers alone.
    rolldownOptions: { output: { minify: true, postBanner: D3 } },
  },
});
