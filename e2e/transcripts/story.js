// What both programs are asked, and what the models do for it: reasoning, texts, a to-do list, changes of a file, commands,
// tools that fail, a subagent, a second turn, and a compaction.

import * as path from "node:path";

/** The prompts for Claude Code, each with the model's replies. */
export const forClaude = (dir, token) => [
  [
    "Please make a.css blue.",
    [{ think: "I should look first." }, { text: "I look." }, { call: "Bash", input: { command: "ls -a", description: "List files" } }],
    [{ call: "TaskCreate", input: { subject: "Write a.css", description: "The file" } }],
    [{ call: "TaskCreate", input: { subject: "Look at it", description: "In a browser" } }],
    [{ call: "TaskUpdate", input: { taskId: "1", status: "in_progress" } }],
    [{ call: "Write", input: { file_path: path.join(dir, "a.css"), content: "a {\n  color: red;\n}\n" } }],
    [{ call: "Edit", input: { file_path: path.join(dir, "a.css"), old_string: "red", new_string: "blue" } }],
    [{ call: "TaskUpdate", input: { taskId: "1", status: "completed" } }],
    [{ call: "Bash", input: { command: "echo half; exit 3", description: "Fail" } }],
    [{ call: "Read", input: { file_path: path.join(dir, "none") } }],
    [{ call: "Agent", input: { description: "Count", prompt: "Count the files.", subagent_type: "general-purpose", run_in_background: false } }],
    [{ text: "One file." }],
    [{ text: `It is **blue**.${token ? ` The token is ${token}.` : ""}` }],
  ],
  ["Are you there?", [{ text: "Here again." }]],
  ["/compact", [{ text: "<summary>The file a.css was made blue.</summary>" }]],
  ["And now?", [{ text: "Done." }]],
];

/** The same for Codex. */
export const forCodex = (token) => [
  [
    "Please make a.css blue.",
    [{ think: "I should look first." }, { text: "I look." }, { call: "exec_command", input: { cmd: "ls -a" } }],
    [{ call: "update_plan", input: { explanation: "Two steps", plan: [{ step: "Write a.css", status: "in_progress" }, { step: "Look at it", status: "pending" }] } }],
    [{ custom: "apply_patch", input: "*** Begin Patch\n*** Add File: a.css\n+a {\n+  color: red;\n+}\n*** End Patch\n" }],
    [{ custom: "apply_patch", input: "*** Begin Patch\n*** Update File: a.css\n@@\n a {\n-  color: red;\n+  color: blue;\n }\n*** End Patch\n" }],
    [{ call: "update_plan", input: { plan: [{ step: "Write a.css", status: "completed" }, { step: "Look at it", status: "pending" }] } }],
    [{ call: "exec_command", input: { cmd: "echo half; exit 3" } }],
    [{ custom: "apply_patch", input: "*** Begin Patch\n*** Update File: no.css\n@@\n-a\n+b\n*** End Patch\n" }],
    [{ text: `It is **blue**.${token ? ` The token is ${token}.` : ""}` }],
  ],
  ["Are you there?", [{ text: "Here again." }]],
];
