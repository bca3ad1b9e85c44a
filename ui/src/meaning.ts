// What a word means, by the page's glossary. Words come from traces and may be called `constructor`.

export function meaningOf(word: string, glossary: Record<string, string>): string {
  return Object.hasOwn(glossary, word) ? (glossary[word] as string) : "";
}
