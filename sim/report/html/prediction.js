@timeline.js@
@prediction_view.js@
showPrediction();
