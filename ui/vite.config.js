import { defineConfig } from "vite";

// One script and one style sheet with fixed names: the report puts both into its HTML file.
export default defineConfig({
  build: {
    outDir: "../src/lostflops/report/assets",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    cssCodeSplit: false,
    lib: { entry: "src/main.ts", formats: ["es"], fileName: () => "app.js", cssFileName: "app" },
    minify: "oxc",
  },
});
